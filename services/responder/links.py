"""Links of an answer: finds them in streamed Markdown, and knows the targets that it may name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from services.responder.run_summary import Artifact

MAX_LABEL_LENGTH, MAX_TARGET_LENGTH = 200, 1_000
"""Limits in characters; longer links are treated as plain text."""

MAX_NESTED_BRACKETS = 8
"""Limit of nested brackets in a link."""

_ADDRESS = re.compile(
    r"(?:https?://|ftp://|file://|www\.|mailto:)"
    r"[^\s<>\"“”‘’«»`|\\\[\]{}\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]*",
    re.IGNORECASE,
)
_CLOSING = ".,;:!?*_~'"
_SCHEME = "artifact:"
_TARGET_AND_TITLE = re.compile(r"\s*(?:<([^<>\n]*)>|(\S*))(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*")


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


# ---------------------------------------------------------------- links in streamed Markdown


class NeedsMoreText(Exception):
    """More text is needed to decide."""


@dataclass(frozen=True, slots=True)
class Link:
    """A Markdown link.

    Args:
        label: Markdown between the brackets.
        target: URL or path, without title.
        end: position after the link.
    """

    label: str
    target: str
    end: int


def link_at(text: str, at: int, *, complete: bool) -> Link | None:
    """Returns the link or image that starts at a position; None if there is none.

    Args:
        text: received so far.
        at: position of its "[", or of the "!" before it.
        complete: no more text follows.

    Raises:
        NeedsMoreText: the following text decides whether it is a link.
    """
    opened = text.index("[", at)
    closed = _closing(text, opened, MAX_LABEL_LENGTH, complete=complete)
    if closed is None or not _has_target(text, closed, complete=complete):
        return None
    end = _closing(text, closed + 1, MAX_TARGET_LENGTH, complete=complete)
    inside = _TARGET_AND_TITLE.fullmatch(text, closed + 2, end) if end else None
    if end is None or inside is None:
        return None
    return Link(text[opened + 1 : closed], inside[1] or inside[2] or "", end + 1)


def _has_target(text: str, closed: int, *, complete: bool) -> bool:
    if closed + 1 == len(text) and not complete:
        raise NeedsMoreText
    return text[closed + 1 : closed + 2] == "("


def _closing(text: str, opened: int, longest: int, *, complete: bool) -> int | None:
    """Returns the position of the matching bracket; None if it is missing, too far or in another paragraph."""
    opening, closing_text = text[opened], ")" if text[opened] == "(" else "]"
    depth, at, last = 0, opened, opened + longest
    while at < len(text) and at <= last:
        letter = text[at]
        depth += (letter == opening) - (letter == closing_text)
        if depth == 0:
            return at
        if depth > MAX_NESTED_BRACKETS or text.startswith("\n\n", at):
            return None
        at += 2 if letter == "\\" else 1
    if at >= len(text) and at <= last and not complete:
        raise NeedsMoreText
    return None
