"""What a model writes, checked as it streams: no HTML, and no link, picture, address or file but those it was given.

What it may point to becomes words: the file's own name, the address for all to see. The rest is marked as what it is.
Nothing that was shown is taken back, so whatever may become a link waits until it is decided, and only that.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from services.responder.allowed_links import Known, address, address_at, is_address
from services.responder.escape import CONTROL, phrase
from services.responder.markdown_links import LONGEST_TARGET, Undecided, link_at

LEFT_OUT = "(link left out)"
NOT_OURS = "(not a file of this run)"

LONGEST_WORD = 300
"""Characters before what looks like a file's name is no longer awaited to end."""

DEEPEST = 3
"""Links within links' labels beyond which brackets are just brackets."""

_WORDS = ("https://", "http://", "ftp://", "file://", "www.", "mailto:", "artifact:")
_BARE = frozenset(map(address, _WORDS))
_ADDRESS = re.compile("|".join(map(re.escape, _WORDS)), re.IGNORECASE)
_TRIGGER = re.compile(rf"!\[|[\[\]\\<./]|{_ADDRESS.pattern}", re.IGNORECASE)
_BEGUN = re.compile(
    "(?:!|" + "|".join(word[:length] for word in _WORDS for length in range(len(word) - 1, 0, -1)) + r")\Z",
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


class Checked:
    """A text on its way to the reader.

    Args:
        known: what it may point to.
        depth: of the label it is, within links.
    """

    def __init__(self, known: Known, depth: int = 0) -> None:
        self._known = known
        self._depth = depth
        self._text = ""
        self._at = 0
        self._whole = False
        self._last = ""
        self._steps: Mapping[str, Callable[[], str]] = {
            "\\": self._escape,
            "<": self._html,
            "]": self._bracket,
            "[": self._link,
            "!": self._link,
            ".": self._path,
            "/": self._path,
        }

    def add(self, text: str) -> str:
        """Takes more of the text; gives what may be shown of it by now."""
        kept = self._word_before()
        self._text, self._at = kept + self._text[self._at :] + CONTROL.sub("", text), len(kept)
        return "".join(self._advance())

    def end(self) -> str:
        """Gives what was still waiting."""
        self._whole = True
        return self.add("")

    def _advance(self) -> Iterator[str]:
        while self._at < len(self._text):
            found = _TRIGGER.search(self._text, self._at)
            stop = found.start() if found else len(self._text)
            begun = None if self._whole else _BEGUN.search(self._text, self._at)
            if begun and begun.start() < stop:
                yield self._shown(self._text[self._at : begun.start()], begun.start())
                return
            yield self._shown(self._text[self._at : stop], stop)
            if found is None:
                return
            try:
                yield self._steps.get(self._text[stop], self._address)()
            except Undecided:
                return

    # ------------------------------------------------------------ steps: each shows what stands here and goes on behind

    def _escape(self) -> str:
        """A mark that the model itself took the meaning from."""
        following = self._next()
        pair = following.isascii() and following.isprintable() and not following.isalnum() and following != " "
        return self._raw(2 if following and pair else 1)

    def _html(self) -> str:
        following = self._next()
        tag = following.isascii() and (following.isalpha() or following in "/!?") and following
        return self._shown("\\<" if tag else "<", self._at + 1)

    def _bracket(self) -> str:
        """A closing bracket, behind which nothing may make a link of what stands before."""
        following = self._next()
        return self._shown(f"]\\{following}", self._at + 2) if following and following in "([:" else self._raw(1)

    def _link(self) -> str:
        link = link_at(self._text, self._at, whole=self._whole) if self._depth < DEEPEST else None
        if link is None:
            return self._raw(2 if self._text[self._at] == "!" else 1)
        inner = Checked(self._known, self._depth + 1)
        label = (inner.add(link.label) + inner.end()).strip()
        return self._put(self._said(label, link.target), link.end)

    def _address(self) -> str:
        if self._text[self._at] in "aA":
            return self._artifact()
        end = self._ended(address_at(self._text, self._at), LONGEST_TARGET)
        written = address(self._text[self._at : end])
        goes_on = self._text[end : end + 1].isalnum()  # in letters that some take for a part of the address
        if written.lower() in _BARE and not goes_on:
            return self._raw(len(written))
        known = self._known.has_address(written) and len(written) < LONGEST_TARGET
        return self._put((written + " " * goes_on) if known else LEFT_OUT, self._at + len(written))

    def _artifact(self) -> str:
        found = _ID.match(self._text, self._at)
        assert found  # noqa: S101  # the trigger is its beginning
        self._ended(found.end(), LONGEST_WORD)
        name = found[1].rstrip(".-_")
        if not name:
            return self._raw(len("artifact:"))
        file = self._known.file(name)
        return self._put(phrase(file.name) if file else NOT_OURS, found.start(1) + len(name))

    def _elsewhere(self) -> str:
        """The rest of an address of any other kind, whose scheme is shown: that alone leads nowhere."""
        found = _WORD.match(self._text, self._at)
        end = self._ended(found.end() if found else self._at, LONGEST_WORD)
        written = address(self._word_before() + self._text[self._at : end])
        stands = self._known.has_path(written)
        return self._shown(self._text[self._at : end], end) if stands else self._put(f" {LEFT_OUT}", end)

    def _path(self) -> str:
        """The rest of a word with a dot or slash in it: files that nobody made are marked."""
        if self._text[self._at] == "/" and self._next() == "/" and _SCHEME.search(self._word_before()):
            return self._elsewhere()
        found = _WORD.match(self._text, self._at) if self._known.about_files else None
        end = self._ended(found.end(), LONGEST_WORD) if found else self._at + 1
        nested = _ADDRESS.search(self._text, self._at + 1, end)
        if nested or end - self._at == LONGEST_WORD:
            return self._raw(1)
        begun = self._at - len(self._word_before())
        shown, at = "", self._at
        for file in _FILE.finditer(self._text, begun, end):
            if file.end() > at and not self._known.has_path(file[0]):
                shown, at = f"{shown}{self._text[at : file.end()]} {NOT_OURS}", file.end()
        return self._shown(shown + self._text[at:end], end)

    # ------------------------------------------------------------ pieces

    def _said(self, label: str, target: str) -> str:
        """A link in words."""
        if file := self._known.file(target):
            name = phrase(file.name)
            return name if label in {"", name} else f"{label} ({name})"
        if self._known.has_address(target):
            return target if label in {"", target} else f"{label} ({target})"
        mark = LEFT_OUT if is_address(target) or not self._known.about_files else NOT_OURS
        return label if label.endswith(mark) else f"{label} {mark}".lstrip()

    def _word_before(self) -> str:
        found = _WORD_BEFORE.search(self._text[max(0, self._at - LONGEST_WORD) : self._at])
        return found[0] if found else ""

    def _next(self) -> str:
        following = self._text[self._at + 1 : self._at + 2]
        if not following and not self._whole:
            raise Undecided
        return following

    def _ended(self, end: int, longest: int) -> int:
        """The end of a word, once it has come; one that does not end is cut."""
        if end - self._at >= longest:
            return self._at + longest
        if end == len(self._text) and not self._whole:
            raise Undecided
        return end

    def _raw(self, length: int) -> str:
        return self._shown(self._text[self._at : self._at + length], self._at + length)

    def _put(self, words: str, end: int) -> str:
        """Words in place of what the model wrote, which must not grow together with what stands before them."""
        apart = " " if self._last in {"]", "<", "\\"} and words else ""
        return self._shown(apart + words, end)

    def _shown(self, words: str, end: int) -> str:
        self._at = end
        self._last = words[-1:] or self._last
        return words
