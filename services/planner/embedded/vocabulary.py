"""Kinds of task without patterns: found by their names, descriptions and examples."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import log

from services.planner.embedded.patterns import CERTAIN, LIKELY, Match, lexicon
from services.planner.task_spec import Catalogue, Spec

SIMILAR = 0.5
"""Share of words that a stretch and an example have in common to be the same request."""

COVERED = 0.4
"""Share of a stretch's meaning that a task's words must account for."""

EXAMPLE_WEIGHT = 4
"""A request in the words of a task's own example is meant for it."""

_WORD = re.compile(r"[^\W\d_]{2,}")
_ENDINGS = (
    "ization",
    "isation",
    "ations",
    "ation",
    "ings",
    "ing",
    "ers",
    "ies",
    "ally",
    "ion",
    "ed",
    "er",
    "es",
    "al",
    "ly",
    "s",
    "e",
    "y",
)
_SHORTEST_STEM = 3


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word


def stems(words: str) -> frozenset[str]:
    """What the words are about, without their endings."""
    common = lexicon().common
    return frozenset(_stem(word) for word in _WORD.findall(words.lower()) if word not in common)


def common_words(masked: str) -> bool:
    """Whether lower-case words contain the commonest words of English."""
    words = re.findall(r"[^\W\d_]+", masked)
    common = [word for word in words if word in lexicon().common]
    return len(common) > 1 and len(common) >= len(words) / 4


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a task's own words say."""

    name: str
    strong: frozenset[str]
    """From its name and examples."""
    weak: frozenset[str]
    """From its description."""
    examples: tuple[frozenset[str], ...]


class Vocabulary:
    """The words by which the tasks of one catalogue can be found."""

    def __init__(self, catalogue: Catalogue, standard: Catalogue) -> None:
        self._generic = lexicon().generic
        self._names = {name: _name_pattern(name) for name in {**standard, **catalogue}}
        entries = [_entry(spec) for spec in {**standard, **catalogue}.values()]
        self._entries = [entry for entry in entries if entry.name not in standard]
        self._rarity = _rarity(entries)
        self._rarest = max(self._rarity.values(), default=1.0)

    def by_name(self, masked: str, start: int, end: int) -> Iterator[Match]:
        """Tasks that a sentence calls by their name."""
        for name, pattern in self._names.items():
            for hit in pattern.finditer(masked, start, end):
                yield Match(hit.start(), hit.end(), (name,), CERTAIN)

    def by_words(self, masked: str, start: int, end: int) -> Iterator[Match]:
        """Tasks that are not standard and whose own words are those of a stretch."""
        if not self._entries:
            return
        found = stems(masked[start:end])
        first_word = next(iter(_WORD.findall(masked[start:end])), "")
        for entry in self._entries:
            commanded = LIKELY if _stem(first_word) in entry.strong - self._generic else 0
            if weight := self._weight(entry, found) or commanded:
                first, last = _span(masked, start, end, found & (entry.strong | entry.weak) - self._generic)
                yield Match(first, last, (entry.name,), weight)

    def _weight(self, entry: _Entry, found: frozenset[str]) -> int:
        distinctive = found & (entry.strong | entry.weak) - self._generic
        if not distinctive:
            return 0
        if any(len(found & example) / len(found | example) >= SIMILAR for example in entry.examples):
            return EXAMPLE_WEIGHT
        whole = sum(self._meaning(stem) for stem in found)
        covered = sum(self._meaning(stem) for stem in found & (entry.strong | entry.weak)) / whole
        distinctive_words = found & entry.strong - self._generic
        return (CERTAIN if distinctive_words else LIKELY) if covered >= COVERED else 0

    def _meaning(self, stem: str) -> float:
        return 0.2 if stem in self._generic else self._rarity.get(stem, self._rarest)


def _entry(spec: Spec) -> _Entry:
    examples = tuple(stems(example) for example in spec.examples)
    strong = stems(spec.name.replace("-", " ")).union(*examples)
    return _Entry(spec.name, strong, stems(spec.description) - strong, examples)


def _rarity(entries: Collection[_Entry]) -> Mapping[str, float]:
    counts: dict[str, int] = {}
    for entry in entries:
        for stem in entry.strong | entry.weak:
            counts[stem] = counts.get(stem, 0) + 1
    return {stem: log(1 + len(entries) / count) for stem, count in counts.items()}


def _name_pattern(name: str) -> re.Pattern[str]:
    words = [re.escape(word) for word in re.split(r"[-_\s]+", name.lower()) if word]
    joined = r"[-_\s]+".join(words) or r"(?!)"
    return re.compile(rf"(?<![\w-]){joined}(?![\w-])")


def _span(masked: str, start: int, end: int, distinctive_words: Collection[str]) -> tuple[int, int]:
    hits = [word for word in _WORD.finditer(masked, start, end) if _stem(word.group()) in distinctive_words]
    return (hits[0].start(), hits[-1].end()) if hits else (start, end)
