"""A request in another language as one in English, and the way back from its words to those of the user."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.planner.embedded.clauses import sentences
from services.planner.embedded.foreign import language_detection as languages
from services.planner.embedded.foreign.glosses import Piece, glossed
from services.planner.embedded.foreign.lexicons import Kind, LanguageLexicon, Token, lexicon_of
from services.planner.embedded.wording import MARKED, Wording

_COLON = re.compile(r"[:：]\s*")  # as it is written elsewhere
_TIGHT = {",", ".", "!", "?", ":", ";", "\n"}
_CJK_QUOTES = re.compile(r"「([^「」]+)」|『([^『』]+)』|《([^《》]+)》|»([^»«]+)«|‹([^‹›]+)›|‚([^‚‘]+)‘")
_OPENING = ("¿", "¡")
_SENTENCE_END = re.compile(r"[.!?。！？]\s*|\n\s*")
_UNQUOTABLE = re.compile(r"[\s“”„\"`]+")
_STAND_IN = 200
"""Characters that represent pasted text of any length."""

_COMMANDS = {Kind.VERB, Kind.ASK}


def with_plain_quotes(text: str) -> str:
    """A text of the same length in which every kind of quotation mark is one that the planner knows."""
    return _CJK_QUOTES.sub(lambda quote: f"“{quote.group()[1:-1]}”", text)


@dataclass(frozen=True, slots=True)
class Placed:
    """A piece and its position in the English words."""

    piece: Piece
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.piece.text)

    def within(self, at: int, end: int) -> tuple[int, int]:
        """The stretch of the request behind some of the English words; only what is written as it was is divided."""
        piece = self.piece
        if piece.kind is not Kind.CONTENT:
            return piece.start, piece.end
        start = piece.start + max(at - self.at, 0)
        return start, piece.end - max(self.end - end, 0)


class Pivot:
    """The English words and the request that they render."""

    def __init__(self, original: str, pieces: Sequence[Piece]) -> None:
        self._original = original
        self.text, self.placed = _assembled(pieces)
        self._silent = [piece for piece in pieces if not piece.text or piece.kind is Kind.LINK]
        self._lower = self.text.lower() if len(self.text.lower()) == len(self.text) else self.text

    def span(self, words: str) -> tuple[int, int] | None:
        """Span of the request that some English words render; None without one."""
        at = self._lower.find(words.strip().lower()) if words.strip() else -1
        return self._span(at, at + len(words.strip())) if at >= 0 else None

    def _span(self, at: int, end: int) -> tuple[int, int] | None:
        touched = [placed for placed in self.placed if placed.at < end and at < placed.end]
        spans = [placed.within(at, end) for placed in touched if placed.piece.end > placed.piece.start]
        return (min(start for start, _ in spans), max(stop for _, stop in spans)) if spans else None

    def original(self, words: str, *, before: bool = False, after: bool = False) -> str:
        """The user's words for some English ones, with words that have no English ones before or after them."""
        span = self.span(words)
        if span is None:
            return words
        span = self._widened(*span, before=before, after=after)
        if self._original[: span[0]].endswith(_OPENING):
            span = span[0] - 1, span[1]
        found = self._original[span[0] : span[1]].strip()
        return found[:1].upper() + found[1:] if words[:1].isupper() and not words.isupper() else found

    def _widened(self, start: int, end: int, *, before: bool, after: bool) -> tuple[int, int]:
        for piece in sorted(self._silent, key=lambda piece: piece.start):
            if after and piece.start >= end and not self._original[end : piece.start].strip():
                end = piece.end
        for piece in sorted(self._silent, key=lambda piece: piece.end, reverse=True):
            if before and not piece.text and piece.end <= start and not self._original[piece.end : start].strip():
                start = piece.start
        return start, end

    @property
    def asks(self) -> bool:
        """Whether the request has a question word."""
        return any(placed.piece.kind is Kind.ASK for placed in self.placed)

    def unknown(self) -> Iterator[Placed]:
        return (placed for placed in self.placed if not placed.piece.known)

    def neighbours(self, placed: Placed) -> tuple[Piece | None, Piece | None]:
        """The pieces before and after one in the request."""
        before = [other.piece for other in self.placed if other.piece.end <= placed.piece.start]
        after = [other.piece for other in self.placed if other.piece.start >= placed.piece.end]
        last = max(before, key=lambda piece: piece.end, default=None)
        return last, min(after, key=lambda piece: piece.start, default=None)


def pivot(wording: Wording, tag: str, original: str) -> Pivot:
    """A request's words turned into English ones, its content left as it is; the original is of the same length."""
    known = lexicon_of(tag)
    content = _pasted(wording.masked, known)
    pieces: list[Piece] = []
    at = 0
    for start, end in (*content, (len(wording.text), len(wording.text))):
        for first, last in sentences(wording.masked[at:start]):
            pieces += _sentence(wording, at + first, at + last, known)
        if end > start:
            pieces.append(_content(wording.text, start, end))
        at = end
    return Pivot(original, pieces)


def _sentence(wording: Wording, start: int, end: int, known: LanguageLexicon) -> list[Piece]:
    """A sentence's pieces and its end; one in English stays as it is."""
    masked = wording.masked[start:end]
    stop = _stop(wording.masked, end)
    if languages.of_sentence(masked, known.tag) == languages.ENGLISH:
        return [Piece(wording.text[start:end], start, end, Kind.CONTENT), *stop]
    return [*glossed(wording.text, known.tokens(wording.masked, start, end), known), *stop]


def _stop(masked: str, end: int) -> list[Piece]:
    return [Piece("\n", end, end, Kind.STOP)] if "\n" in masked[end : end + 2] else []


def _content(text: str, start: int, end: int) -> Piece:
    """Pasted text in quotation marks, cut short: its beginning and its end represent all of it."""
    words = text[start:end].strip()
    start = text.index(words, start)
    plain = _UNQUOTABLE.sub(" ", words).strip()
    cut = plain if len(plain) <= _STAND_IN else f"{plain[: _STAND_IN // 2]} … {plain[-_STAND_IN // 2 :]}"
    return Piece(f"“{cut}”", start, start + len(words), Kind.LITERAL)


def _assembled(pieces: Sequence[Piece]) -> tuple[str, list[Placed]]:
    text, placed = "", list[Placed]()
    for piece in pieces:
        if not piece.text or (piece.text in _TIGHT and text[-1:] in {"", *_TIGHT}):
            continue
        joined = not text or piece.text in _TIGHT or text.endswith("\n")
        text += "" if joined else " "
        placed.append(Placed(piece, len(text)))
        text += piece.text
    return text, placed


# ---------------------------------------------------------------- pasted content


def _pasted(masked: str, known: LanguageLexicon) -> list[tuple[int, int]]:
    """Spans of content without quotation marks: after a colon, or in lines next to the request."""
    colon = _COLON.search(masked)
    if colon and _commands(masked[: colon.start()], known) and "?" not in masked[: colon.start()]:
        tail = masked[colon.end() :]
        listed = re.match(r"\s*(?:\d+[.)]|[-*•])\s", tail) and _commands(tail, known)
        if tail.strip() and not listed and not re.match(MARKED, tail):
            return [(colon.end(), colon.end() + _content_length(tail, known))]
    lines = [line for line in re.finditer(r"[^\n]+", masked) if line.group().strip()]
    if len(lines) > 1:
        first, last = lines[0], lines[-1]
        if _commands(first.group(), known) and not _commands(last.group(), known):
            return [(lines[1].start(), last.end())]
        if _commands(last.group(), known) and not _commands(first.group(), known):
            return [(first.start(), lines[-2].end())]
    return []


def _content_length(tail: str, known: LanguageLexicon) -> int:
    """How much of what follows a colon is content: a last sentence with a further command is not."""
    for further in _SENTENCE_END.finditer(tail, max(len(tail) - languages.LOOKED_AT, 0)):
        rest = [token for token in known.tokens(tail, further.end(), len(tail)) if token.kind is not Kind.SILENT]
        if rest and rest[0].kind is Kind.THEN and _asks(rest[1:2] if known.spaced else rest):
            return further.start() + 1
    return len(tail)


def _commands(words: str, known: LanguageLexicon) -> bool:
    return len(words) <= languages.LOOKED_AT and _asks(known.tokens(words, 0, len(words)))


def _asks(tokens: Sequence[Token]) -> bool:
    return any(token.kind in _COMMANDS for token in tokens)
