"""Files and URLs that an answer may name: those of the run and those in the LLM's input."""

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
class AllowedLinks:
    """Link targets that an answer may name.

    Args:
        files: of the run, by id.
        material: text of the LLM's input, whose URLs and file names are allowed.
        about_files: whether files named by the answer must be those of the run; False in pure conversation.
    """

    files: Mapping[str, Artifact]
    material: str = ""
    about_files: bool = True
    _addresses: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_addresses", frozenset(map(strip_punctuation, _ADDRESS.findall(self.material))))

    def file(self, target: str) -> Artifact | None:
        """Returns the file of a link target: by id, or by file name, whatever its path."""
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
        """Whether the path occurs as a separate word in the input or as the name of a file."""
        alone = re.compile(rf"(?<![A-Za-z0-9_.-]){re.escape(path)}(?![A-Za-z0-9_-])")
        return any(alone.search(words) for words in (self.material, *(file.name for file in self.files.values())))


def strip_punctuation(written: str) -> str:
    """Removes trailing punctuation, and closing brackets that are not opened inside the URL."""
    while written:
        unopened = written[-1] == ")" and written.count(")") > written.count("(")
        if written[-1] not in _CLOSING and not unopened:
            break
        written = written[:-1]
    return written


def address_end(text: str, at: int) -> int:
    """Returns the end of the URL that starts at `at`, including trailing punctuation."""
    found = _ADDRESS.match(text, at)
    return found.end() if found else at


def is_address(target: str) -> bool:
    """Whether the target is a URL of any scheme that a browser would follow."""
    return bool(re.match(r"(?:[a-z][a-z0-9+.-]*:|//|www\.)", target, re.IGNORECASE)) and not _is_artifact(target)


def _is_artifact(target: str) -> bool:
    return target.lower().startswith((_SCHEME, "sandbox:"))
