"""A request's words as features: n-grams of words, parts of words, and pairs of words near each other."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from services.planner.embedded.wording import Wording

MOST_TOKENS = 400
MOST_OF_CONTENT = 60
"""Tokens of one quoted or pasted text that count: what comes later is content, not instruction."""

LONGEST_PHRASE = 3
PART_LENGTHS = (3, 4, 5)
NEAR = 5
"""Largest distance of the words of a pair."""

_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


class Family(IntEnum):
    """Kinds of feature; each is normalised on its own, so that none drowns the others."""

    PAIR = 0
    PART = 1
    PHRASE = 2


@dataclass(frozen=True, slots=True)
class Token:
    word: str
    start: int
    """Its position in the request, in characters."""

    @property
    def is_word(self) -> bool:
        return self.word.isalpha()


Feature = tuple[Family, str]


def tokens(wording: Wording) -> list[Token]:
    """The words, punctuation marks, and for every file named its kind."""
    found: list[Token] = []
    at = 0
    for mention in wording.mentions:
        found += _plain(wording, at, mention.start)
        found.append(Token(f"<{mention.modality.name.lower()}>", mention.start))
        at = mention.end
    found += _plain(wording, at, len(wording.text))
    return _without_long_content(found, wording)[:MOST_TOKENS]


def features(found: list[Token]) -> Iterator[tuple[Feature, tuple[int, ...]]]:
    """Every feature with the positions of the tokens it is made of; repeated where it occurs again."""
    for i, token in enumerate(found):
        for length in range(1, LONGEST_PHRASE + 1):
            if i + length <= len(found):
                phrase = " ".join(other.word for other in found[i : i + length])
                yield (Family.PHRASE, phrase), tuple(range(i, i + length))
        if token.is_word:
            yield from (((Family.PART, part), (i,)) for part in _parts(token.word))
            yield from (((Family.PAIR, f"{token.word}~{found[j].word}"), (i, j)) for j in _following(found, i))


def _plain(wording: Wording, start: int, end: int) -> Iterator[Token]:
    text = wording.text[start:end]
    for match in _TOKEN.finditer(text):
        yield Token(match.group().lower(), start + match.start())


def _parts(word: str) -> Iterator[str]:
    edged = f" {word} "
    for length in PART_LENGTHS:
        yield from (edged[j : j + length] for j in range(len(edged) - length + 1))


def _following(found: list[Token], i: int) -> list[int]:
    near: list[int] = []
    for j in range(i + 1, len(found)):
        if len(near) == NEAR:
            break
        if found[j].is_word:
            near.append(j)
    return near


def _without_long_content(found: list[Token], wording: Wording) -> list[Token]:
    starts = [token.start for token in found]
    left_out: set[int] = set()
    for payload in wording.payloads:
        first, end = bisect_left(starts, payload.start), bisect_left(starts, payload.end)
        left_out.update(range(first + MOST_OF_CONTENT, end))
    return [token for index, token in enumerate(found) if index not in left_out]
