"""Splits a long text into sentences and shorter pieces that fit into a model's input."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_LINE = re.compile(r"(\s*\n\s*)")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*(\s+)(?=[^\s\d.,;])|(?<=[。！？])(\s*)")
_WORD = re.compile(r"\s*\S+\s*")
_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|No|vs|etc|bzw|ca|Nr|e\.g|i\.e|z\.B|d\.h))\.$")


@dataclass(frozen=True)
class Piece:
    """Part of a text, with the white space after it."""

    text: str
    gap: str


def split_sentences(text: str) -> list[Piece]:
    """Splits a text into sentences; joined with their gaps they are the stripped text."""
    parts = _LINE.split(text.strip())
    lines = zip(parts[::2], [*parts[1::2], ""], strict=True)
    pieces: list[Piece] = []
    for piece in (piece for line, gap in lines for piece in _split_line(line, gap)):
        if piece.text:
            pieces.append(piece)
        elif pieces:
            pieces[-1] = Piece(pieces[-1].text, pieces[-1].gap + piece.gap)
    return pieces


def split_long(pieces: list[Piece], count: Callable[[str], int], limit: int) -> list[Piece]:
    """Splits pieces above the limit of tokens between words, or within a word if a single one is above it."""
    return [part for piece in pieces for part in _split_piece(piece, count, limit)]


def join_short(pieces: list[Piece], count: Callable[[str], int], limit: int) -> list[str]:
    """Joins adjacent pieces as long as the result is within the limit of tokens."""
    texts: list[str] = []
    previous = ""
    for piece in pieces:
        joined = previous + piece.text
        if texts and count(joined) <= limit:
            texts[-1] = joined
        else:
            texts.append(joined := piece.text)
        previous = joined + piece.gap
    return texts


def _split_line(line: str, gap: str) -> Iterator[Piece]:
    start = 0
    for match in _SENTENCE.finditer(line):
        space = match.span(1) if match[1] is not None else match.span(2)
        if match[1] is not None and _ABBREVIATION.search(line, start, space[0]):
            continue
        yield Piece(line[start : space[0]], line[slice(*space)])
        start = space[1]
    yield Piece(line[start:], gap)


def _split_piece(piece: Piece, count: Callable[[str], int], limit: int) -> Iterator[Piece]:
    if count(piece.text) <= limit:
        yield piece
        return
    parts = _WORD.findall(piece.text)
    if len(parts) == 1:
        parts = [piece.text[: len(piece.text) // 2], piece.text[len(piece.text) // 2 :]]
    middle = len(parts) // 2
    first, second = "".join(parts[:middle]), "".join(parts[middle:])
    stripped = first.rstrip()
    yield from _split_piece(Piece(stripped, first[len(stripped) :]), count, limit)
    yield from _split_piece(Piece(second, piece.gap), count, limit)
