"""Corrects typos in a request's instructions; quoted and pasted content and names stay as they were written.

A word is a typo if it is no English word and one slip away from a word of which requests are made: a letter is
missing, added or wrong, or two have changed places. spelling.json has these words, the commonest in labelled requests
first; the English words "near" them, which are none of their typos (from the CMU Pronouncing Dictionary); and slips of
another kind.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from services.planner.embedded.learned.features import Family
from services.planner.embedded.learned.weights import weights
from services.planner.embedded.patterns import lexicon
from services.planner.embedded.resources import Resource
from services.planner.embedded.wording import Wording, read

_WORD = re.compile(r"(?<![\w.'’@/-])[a-z]{3,}(?![\w.'’@/-])")
_CONTENT_FOLLOWS = re.compile(r"[:\n]")
_SENTENCE_BEGINS = re.compile(r"(?:^|[.!?]\s+|\n)$")
_DETERMINER = re.compile(r"\b(?:the|this|that|an?|my|our|your|his|her|its|their)\s+$")
_NEXT = re.compile(r"\s+([a-z]+)")
_LAST = re.compile(r"([a-z]+)\s+$")
_BRITISH = re.compile(r"(?<=[iy])s(?=(?:e[sdr]?|ers?|ing|ations?)$)")
_AMOUNTS = frozenset(("many", "much"))
_LONGER = 4
"""Length from which a letter may be missing, added or wrong; in shorter words two may have changed places."""


@dataclass(frozen=True)
class Spelling:
    """The words that typos are corrected to."""

    rank: Mapping[str, int]
    """Their order by frequency."""
    near: frozenset[str]
    slips: Mapping[str, str]
    shortened: Mapping[str, tuple[str, ...]]
    """The words by what is left of them without one letter."""

    def meant(self, word: str) -> list[str]:
        """What a typo may mean, the commonest first; empty if the word is none."""
        if slip := self.slips.get(word):
            return [slip]
        if word in self.near or (Family.PHRASE, word) in weights().features or _american(word) in self.rank:
            return []
        found = {known for rest in (word, *_shortened(word)) for known in self.shortened.get(rest, ())}
        return sorted((known for known in found if _is_one_slip(word, known)), key=self.rank.__getitem__)


@cache
def spelling() -> Spelling:
    """The words of spelling.json."""
    data = json.loads((files("services.planner.embedded") / "spelling.json").read_text(encoding="utf-8"))
    words = " ".join(data["words"]).split()
    shortened: dict[str, list[str]] = defaultdict(list)
    for word in words:
        for rest in (word, *_shortened(word)):
            shortened[rest].append(word)
    return Spelling(
        rank={word: rank for rank, word in enumerate(words)},
        near=frozenset(" ".join(data["near"]).split()),
        slips=data["slips"],
        shortened={rest: tuple(known) for rest, known in shortened.items()},
    )


def read_mended(text: str, resources: Iterable[Resource]) -> Wording:
    """The wording of a request, its typos corrected up to where pasted content may begin."""
    there = tuple(resources)
    wording = read(text, there)
    content = _CONTENT_FOLLOWS.search(wording.masked)
    end = content.start() if content else len(text)
    mended, at, spans = "", 0, list[tuple[int, int]]()
    for word in _WORD.finditer(wording.masked, 0, end):
        meant = _meant(wording, word)
        if meant:
            mended, at = mended + text[at : word.start()] + meant, word.end()
            spans.append((len(mended) - len(meant), len(mended)))
    return replace(read(mended + text[at:], there), mended=tuple(spans)) if at else wording


def _meant(wording: Wording, word: re.Match[str]) -> str:
    """What a word means if it is a typo; empty otherwise."""
    before = wording.masked[max(0, word.start() - 40) : word.start()]
    capital = wording.text[word.start()].isupper()
    if capital and not _SENTENCE_BEGINS.search(before):
        return ""  # a name
    found = spelling().meant(word.group())
    if len(found) > 1:
        found = list(_fitting(found, wording.masked, word)) or found
    return found[0].capitalize() if found and capital else "".join(found[:1])


def _fitting(found: list[str], masked: str, word: re.Match[str]) -> Iterator[str]:
    """Corrections that fit the adjacent words."""
    last, following = _LAST.search(masked, 0, word.start()), _NEXT.match(masked, word.end())
    known = weights().features
    for one in found:
        phrases = [f"{last[1]} {one}"] if last else []
        phrases += [f"{one} {following[1]}"] if following else []
        if any((Family.PHRASE, phrase) in known for phrase in phrases):
            yield one
    if _DETERMINER.search(masked, 0, word.start()):
        yield from (one for one in found if one not in lexicon().common | _AMOUNTS)


def _american(word: str) -> str:
    return _BRITISH.sub("z", word)


def _shortened(word: str) -> Iterator[str]:
    return (word[:at] + word[at + 1 :] for at in range(len(word)))


def _is_one_slip(word: str, known: str) -> bool:
    shorter = min(len(word), len(known))
    front = next((at for at in range(shorter) if word[at] != known[at]), shorter)
    first = front == 0
    word, known = word[front:], known[front:]
    if word[:2] == known[1::-1] and word[2:] == known[2:]:
        return True
    is_long = front + len(known) >= _LONGER and front + len(word) >= _LONGER - 1
    return is_long and not first and (word[1:] == known or word == known[1:] or word[1:] == known[1:])
