"""What an answer may point to: the files of the run, and the addresses that stand in what the model was given."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from services.responder.run_summary import Artifact

_ADDRESS = re.compile(
    r"(?:https?://|ftp://|file://|www\.|mailto:)"
    r"[^\s<>\"“”‘’«»`|\\\[\]{}\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]*",
    re.IGNORECASE,
)
_CLOSING = ".,;:!?*_~'"
_SCHEME = "artifact:"


@dataclass(frozen=True, slots=True)
class Known:
    """What a model was given to write its answer from.

    Args:
        files: by the id under which the model knows them.
        material: all words it was given: an address or a file that stands in them is not invented.
        about_files: what the answer says of files is about the run's; False in a mere conversation.
    """

    files: Mapping[str, Artifact]
    material: str = ""
    about_files: bool = True
    _addresses: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_addresses", frozenset(map(address, _ADDRESS.findall(self.material))))

    def file(self, target: str) -> Artifact | None:
        """The file a link means: by id, or by its name behind whatever path."""
        target = unquote(target.strip())
        if target.lower().startswith(_SCHEME):
            target = target[len(_SCHEME) :]
        if found := self.files.get(target):
            return found
        if "//" in target:
            return None
        name = re.split(r"[/\\:]", target)[-1]
        return next((file for file in self.files.values() if name and file.name == name), None)

    def has_address(self, written: str) -> bool:
        return written in self._addresses

    def has_path(self, path: str) -> bool:
        """Whether it stands somewhere as a word of its own."""
        alone = re.compile(rf"(?<![A-Za-z0-9_.-]){re.escape(path)}(?![A-Za-z0-9_-])")
        return any(alone.search(words) for words in (self.material, *(file.name for file in self.files.values())))


def address(written: str) -> str:
    """The address without what only follows it: the end of the sentence, a bracket that opened before it."""
    while written:
        unopened = written[-1] == ")" and written.count(")") > written.count("(")
        if written[-1] not in _CLOSING and not unopened:
            break
        written = written[:-1]
    return written


def address_at(text: str, at: int) -> int:
    """Where the address that begins here ends, what follows it included."""
    found = _ADDRESS.match(text, at)
    return found.end() if found else at


def is_address(target: str) -> bool:
    """Whether it is one, or any other scheme that a reader's program would follow."""
    return bool(re.match(r"(?:[a-z][a-z0-9+.-]*:|//|www\.)", target, re.IGNORECASE)) and not _is_artifact(target)


def _is_artifact(target: str) -> bool:
    return target.lower().startswith((_SCHEME, "sandbox:"))
