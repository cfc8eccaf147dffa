"""Filters of an LLM's answer while it streams: reasoning, HTML, and links, images, URLs and files not in its input.

Allowed targets are replaced by plain text: the name of the file, or the visible URL. Others are replaced by a marker.
Emitted text cannot be withdrawn, so text that may become a link is held back until that is decided.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from services.responder.links import (
    MAX_TARGET_LENGTH,
    AllowedLinks,
    NeedsMoreText,
    address_end,
    is_address,
    link_at,
    strip_punctuation,
)
from services.responder.markdown import CONTROL, inline

REMOVED_LINK = "(link left out)"
UNKNOWN_FILE = "(not a file of this run)"

MAX_WORD_LENGTH = 300
"""Longest possible file name; a longer word is emitted without waiting for its end."""

MAX_DEPTH = 3
"""Nesting of links in labels beyond which brackets are plain text."""

_PREFIXES = ("https://", "http://", "ftp://", "file://", "www.", "mailto:", "artifact:")
_BARE_PREFIXES = frozenset(map(strip_punctuation, _PREFIXES))
_ADDRESS = re.compile("|".join(map(re.escape, _PREFIXES)), re.IGNORECASE)
_TRIGGER = re.compile(rf"!\[|[\[\]\\<./]|{_ADDRESS.pattern}", re.IGNORECASE)
_PARTIAL_PREFIX = re.compile(
    "(?:!|" + "|".join(word[:length] for word in _PREFIXES for length in range(len(word) - 1, 0, -1)) + r")\Z",
    re.IGNORECASE,
)
_LETTERS = r"[^\s<>\"'“”‘’«»`()\[\]{}|*,;!?\\\u3000-\u303f\uff00-\uff20]"
_WORD, _WORD_BEFORE = re.compile(f"{_LETTERS}*"), re.compile(rf"{_LETTERS}*\Z")
_SCHEME = re.compile(r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*:\Z", re.IGNORECASE)
_ID = re.compile(r"artifact:([\w.-]*)", re.IGNORECASE | re.ASCII)
_FILE = re.compile(
    r"(?:[\w~./%+-]*\w\.(?:png|jpe?g|gif|webp|bmp|tiff?|svg|heic|wav|mp3|flac|ogg|opus|m4a|mp4|webm|avi|mov|mkv|gif"
    r"|pdf|docx?|xlsx?|pptx?|csv|tsv|jsonl?|txt|md|html?|xml|zip|npy)|(?<![\w./~])[~.]{0,2}/(?:[\w.-]+/)+[\w.-]*\w)"
    r"(?![\w-])",
    re.IGNORECASE | re.ASCII,
)
_THINK_START, _THINK_END = "<think>", "</think>"


class ReasoningFilter:
    """Removes the reasoning before an answer, in <think> tags, which some endpoints leave in the text."""

    def __init__(self) -> None:
        self._buffer = ""
        self._has_answer = False

    def add(self, text: str) -> str:
        """Adds text and returns what belongs to the answer."""
        if self._has_answer:
            return text
        self._buffer = (self._buffer + text).lstrip()
        if _THINK_START.startswith(self._buffer[: len(_THINK_START)]):
            _, ended, answer = self._buffer.partition(_THINK_END)
            self._buffer = answer.lstrip() if ended else self._buffer
            if not ended or not self._buffer:
                return ""
        self._has_answer = True
        return self._buffer

    def end(self) -> str:
        """Returns the text held back; no more text follows."""
        return "" if self._has_answer or self._buffer.startswith(_THINK_START) else self._buffer


class OutputFilter:
    """Removes HTML and unknown targets from one text.

    Args:
        allowed: targets the text may name.
        depth: nesting level, when filtering the label of a link.
    """

    def __init__(self, allowed: AllowedLinks, depth: int = 0) -> None:
        self._allowed = allowed
        self._depth = depth
        self._text = ""
        self._position = 0
        self._is_complete = False
        self._last = ""
        self._handlers: Mapping[str, Callable[[], str]] = {
            "\\": self._escape,
            "<": self._html,
            "]": self._bracket,
            "[": self._link,
            "!": self._link,
            ".": self._path,
            "/": self._path,
        }

    def add(self, text: str) -> str:
        """Adds text and returns what can be emitted now."""
        held_back = self._word_before()
        self._text, self._position = held_back + self._text[self._position :] + CONTROL.sub("", text), len(held_back)
        return "".join(self._advance())

    def end(self) -> str:
        """Returns the text held back; no more text follows."""
        self._is_complete = True
        return self.add("")

    def _advance(self) -> Iterator[str]:
        while self._position < len(self._text):
            found = _TRIGGER.search(self._text, self._position)
            stop = found.start() if found else len(self._text)
            partial = None if self._is_complete else _PARTIAL_PREFIX.search(self._text, self._position)
            if partial and partial.start() < stop:
                yield self._emit(self._text[self._position : partial.start()], partial.start())
                return
            yield self._emit(self._text[self._position : stop], stop)
            if found is None:
                return
            try:
                yield self._handlers.get(self._text[stop], self._address)()
            except NeedsMoreText:
                return

    # ------------------------------------------------------------ handlers: each emits the text at the current position

    def _escape(self) -> str:
        """Emits a character that the text itself escapes."""
        following = self._next()
        pair = following.isascii() and following.isprintable() and not following.isalnum() and following != " "
        return self._emit_unchanged(2 if following and pair else 1)

    def _html(self) -> str:
        following = self._next()
        tag = following.isascii() and (following.isalpha() or following in "/!?") and following
        return self._emit("\\<" if tag else "<", self._position + 1)

    def _bracket(self) -> str:
        """Emits a closing bracket; escapes what follows if both would make the text before them a link."""
        following = self._next()
        return (
            self._emit(f"]\\{following}", self._position + 2)
            if following and following in "([:"
            else self._emit_unchanged(1)
        )

    def _link(self) -> str:
        link = link_at(self._text, self._position, complete=self._is_complete) if self._depth < MAX_DEPTH else None
        if link is None:
            return self._emit_unchanged(2 if self._text[self._position] == "!" else 1)
        inner = OutputFilter(self._allowed, self._depth + 1)
        label = (inner.add(link.label) + inner.end()).strip()
        return self._replace(self._link_text(label, link.target), link.end)

    def _address(self) -> str:
        if self._text[self._position] in "aA":
            return self._artifact()
        end = self._word_end(address_end(self._text, self._position), MAX_TARGET_LENGTH)
        url = strip_punctuation(self._text[self._position : end])
        continues = self._text[end : end + 1].isalnum()  # letters that some parsers take for a part of the URL
        if url.lower() in _BARE_PREFIXES and not continues:
            return self._emit_unchanged(len(url))
        is_known = self._allowed.has_address(url) and len(url) < MAX_TARGET_LENGTH
        return self._replace((url + " " * continues) if is_known else REMOVED_LINK, self._position + len(url))

    def _artifact(self) -> str:
        found = _ID.match(self._text, self._position)
        assert found  # noqa: S101  # _TRIGGER matched its prefix
        self._word_end(found.end(), MAX_WORD_LENGTH)
        name = found[1].rstrip(".-_")
        if not name:
            return self._emit_unchanged(len("artifact:"))
        file = self._allowed.file(name)
        return self._replace(inline(file.name) if file else UNKNOWN_FILE, found.start(1) + len(name))

    def _other_scheme(self) -> str:
        """Emits the rest of a URL of another scheme, unless it is removed; the scheme alone links to nothing."""
        found = _WORD.match(self._text, self._position)
        end = self._word_end(found.end() if found else self._position, MAX_WORD_LENGTH)
        url = strip_punctuation(self._word_before() + self._text[self._position : end])
        is_known = self._allowed.has_path(url)
        return self._emit(self._text[self._position : end], end) if is_known else self._replace(f" {REMOVED_LINK}", end)

    def _path(self) -> str:
        """Emits the rest of a word with a dot or slash; marks file names that the run does not know."""
        if self._text[self._position] == "/" and self._next() == "/" and _SCHEME.search(self._word_before()):
            return self._other_scheme()
        found = _WORD.match(self._text, self._position) if self._allowed.about_files else None
        end = self._word_end(found.end(), MAX_WORD_LENGTH) if found else self._position + 1
        nested = _ADDRESS.search(self._text, self._position + 1, end)
        if nested or end - self._position == MAX_WORD_LENGTH:
            return self._emit_unchanged(1)
        partial = self._position - len(self._word_before())
        visible, at = "", self._position
        for file in _FILE.finditer(self._text, partial, end):
            if file.end() > at and not self._allowed.has_path(file[0]):
                visible, at = f"{visible}{self._text[at : file.end()]} {UNKNOWN_FILE}", file.end()
        return self._emit(visible + self._text[at:end], end)

    # ------------------------------------------------------------ helpers

    def _link_text(self, label: str, target: str) -> str:
        """Returns the plain text of a link."""
        if file := self._allowed.file(target):
            name = inline(file.name)
            return name if label in {"", name} else f"{label} ({name})"
        if self._allowed.has_address(target):
            return target if label in {"", target} else f"{label} ({target})"
        mark = REMOVED_LINK if is_address(target) or not self._allowed.about_files else UNKNOWN_FILE
        return label if label.endswith(mark) else f"{label} {mark}".lstrip()

    def _word_before(self) -> str:
        found = _WORD_BEFORE.search(self._text[max(0, self._position - MAX_WORD_LENGTH) : self._position])
        return found[0] if found else ""

    def _next(self) -> str:
        following = self._text[self._position + 1 : self._position + 2]
        if not following and not self._is_complete:
            raise NeedsMoreText
        return following

    def _word_end(self, end: int, longest: int) -> int:
        """Returns the end of a word, limited to `longest` characters; waits until the end is known."""
        if end - self._position >= longest:
            return self._position + longest
        if end == len(self._text) and not self._is_complete:
            raise NeedsMoreText
        return end

    def _emit_unchanged(self, length: int) -> str:
        return self._emit(self._text[self._position : self._position + length], self._position + length)

    def _replace(self, text: str, end: int) -> str:
        """Emits text instead of the original; a space keeps it apart from an escaping character before it."""
        apart = " " if self._last in {"]", "<", "\\"} and text else ""
        return self._emit(apart + text, end)

    def _emit(self, text: str, end: int) -> str:
        self._position = end
        self._last = text[-1:] or self._last
        return text
