"""A long text in pieces that a model takes one at a time: sentences, and what stands between them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_LINE = re.compile(r"(\s*\n\s*)")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*(\s+)(?=[^\s\d.,;])|(?<=[。！？])(\s*)")
_WORD = re.compile(r"\s*\S+\s*")
_ABBREVIATED = re.compile(r"(?:\b(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|No|vs|etc|bzw|ca|Nr|e\.g|i\.e|z\.B|d\.h))\.$")


@dataclass(frozen=True)
class Piece:
    """Some text, and the white space after it."""

    text: str
    gap: str


def sentences(text: str) -> list[Piece]:
    """The sentences of a text; put together again they are the text, but for white space around it."""
    parts = _LINE.split(text.strip())
    lines = zip(parts[::2], [*parts[1::2], ""], strict=True)
    pieces: list[Piece] = []
    for piece in (piece for line, gap in lines for piece in _of_line(line, gap)):
        if piece.text:
            pieces.append(piece)
        elif pieces:
            pieces[-1] = Piece(pieces[-1].text, pieces[-1].gap + piece.gap)
    return pieces


def fitted(pieces: list[Piece], count: Callable[[str], int], most: int) -> list[Piece]:
    """The pieces, those that count more than allowed cut between words, or within them where there is no other way."""
    return [part for piece in pieces for part in _cut(piece, count, most)]


def packed(pieces: list[Piece], count: Callable[[str], int], most: int) -> list[str]:
    """Neighbours put together as long as they count no more than allowed."""
    texts: list[str] = []
    before = ""
    for piece in pieces:
        longer = before + piece.text
        if texts and count(longer) <= most:
            texts[-1] = longer
        else:
            texts.append(longer := piece.text)
        before = longer + piece.gap
    return texts


def _of_line(line: str, gap: str) -> Iterator[Piece]:
    start = 0
    for match in _SENTENCE.finditer(line):
        space = match.span(1) if match[1] is not None else match.span(2)
        if match[1] is not None and _ABBREVIATED.search(line, start, space[0]):
            continue
        yield Piece(line[start : space[0]], line[slice(*space)])
        start = space[1]
    yield Piece(line[start:], gap)


def _cut(piece: Piece, count: Callable[[str], int], most: int) -> Iterator[Piece]:
    if count(piece.text) <= most:
        yield piece
        return
    parts = _WORD.findall(piece.text)
    if len(parts) == 1:
        parts = [piece.text[: len(piece.text) // 2], piece.text[len(piece.text) // 2 :]]
    middle = len(parts) // 2
    first, second = "".join(parts[:middle]), "".join(parts[middle:])
    bare = first.rstrip()
    yield from _cut(Piece(bare, first[len(bare) :]), count, most)
    yield from _cut(Piece(second, piece.gap), count, most)
