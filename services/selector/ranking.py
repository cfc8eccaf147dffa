"""Which models suit a task best, by what is described and measured of them."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from heapq import nlargest
from types import MappingProxyType
from typing import NamedTuple

FIT = 3.0
"""The most that words can add; what is measured adds less, so that the model that does what was asked is first."""

_SPOKEN, _UNSPOKEN = 0.3, -1.5
_POPULAR = 0.3
_SLOW = 0.2
"""For every tenfold of PROMPT_SECONDS."""
PROMPT_SECONDS = 0.05
"""A median below it is as good as any."""
_EXTERNAL = -10.0
_FAILING = -20.0


class Presence(Enum):
    """How near a model is to running."""

    READY = "loaded"
    LOADABLE = "to be loaded"
    AWAY = "does not answer just now"
    DORMANT = "asleep"


_PRESENCE = {Presence.READY: 1.0, Presence.LOADABLE: 0.9, Presence.AWAY: -0.6, Presence.DORMANT: -0.8}


@dataclass(frozen=True, slots=True)
class Merits:
    """What is known of a model."""

    stems: frozenset[str]
    """Of its name and description."""
    presence: Presence
    external: bool = False
    median: float | None = None
    """Seconds of one call, as measured."""
    downloads: int = 0
    likes: int = 0
    languages: frozenset[str] = frozenset()
    """Primary tags; empty: any."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the request."""

    written: str
    weight: float


@dataclass(frozen=True, slots=True)
class Wish:
    """What the models are weighed against."""

    words: Mapping[str, Word]
    """By stem."""
    languages: frozenset[str] = frozenset()
    """Primary tags that the task names."""
    internal_first: bool = True


class Favour(NamedTuple):
    """What somebody else than the ranking has to say for a model, or against it."""

    points: float
    reason: str


class Ranked(NamedTuple):
    """A model's place in the list."""

    position: int
    """Among the models that were given."""
    score: float
    fit: float
    """0 to 1: its share of the words that tell the models apart."""
    reason: str


class _Telling(NamedTuple):
    """A word of the wish that some models have and others do not."""

    stem: str
    written: str
    share: float
    """Of what all such words are worth together."""


class _Fit(NamedTuple):
    share: float
    words: tuple[str, ...]


class Ranking:
    """Models of one task, in the order that settles a tie."""

    def __init__(self, merits: Sequence[Merits]) -> None:
        self._merits = merits

    def best(
        self,
        wish: Wish,
        admitted: Iterable[int],
        limit: int,
        failing: Collection[int],
        favours: Mapping[int, Favour] = MappingProxyType({}),
    ) -> list[Ranked]:
        """The best models, best first.

        Args:
            wish: what is wanted.
            admitted: positions of the models that may be chosen.
            limit: at most so many.
            failing: positions of those to be asked last.
            favours: by position.
        """
        telling = self._telling(wish)
        scores = self._scores(wish, telling, failing)
        for position, favour in favours.items():
            scores[position] += favour.points
        return [
            Ranked(position, round(scores[position], 4), fit.share, self._reason(position, wish, fit, failing, favours))
            for position in nlargest(limit, admitted, key=scores.__getitem__)
            for fit in (self._fit(position, telling),)
        ]

    @cached_property
    def _standing(self) -> list[float]:
        """What each model scores whatever is asked."""
        return [_PRESENCE[merits.presence] + _popularity(merits) - _slowness(merits) for merits in self._merits]

    @cached_property
    def _holders(self) -> dict[str, list[int]]:
        """Positions of the models that have a word, by stem."""
        holders: dict[str, list[int]] = defaultdict(list)
        for position, merits in enumerate(self._merits):
            for stem in merits.stems:
                holders[stem].append(position)
        return holders

    @cached_property
    def _outside(self) -> list[int]:
        return [position for position, merits in enumerate(self._merits) if merits.external]

    @cached_property
    def _choosy(self) -> list[int]:
        """Positions of the models that do not take every language."""
        return [position for position, merits in enumerate(self._merits) if merits.languages]

    def _telling(self, wish: Wish) -> list[_Telling]:
        """What each word of the wish is worth, the rarer the more; one that all models have, or none, tells nothing."""
        held = [(stem, word, len(self._holders.get(stem, ()))) for stem, word in wish.words.items()]
        worth = [
            (stem, word.written, word.weight * math.log(len(self._merits) / holders))
            for stem, word, holders in held
            if 0 < holders < len(self._merits)
        ]
        total = sum(value for _, _, value in worth)
        return [_Telling(stem, written, value / total) for stem, written, value in worth]

    def _scores(self, wish: Wish, telling: Sequence[_Telling], failing: Iterable[int]) -> list[float]:
        """Of every model; only those that a word or fault concerns are looked at, there may be ten thousand."""
        scores = self._standing.copy()
        for word in telling:
            for position in self._holders[word.stem]:
                scores[position] += FIT * word.share
        if wish.languages:
            for position in self._choosy:
                scores[position] += _spoken(self._merits[position], wish)
        for position in self._outside if wish.internal_first else ():
            scores[position] += _EXTERNAL
        for position in failing:
            scores[position] += _FAILING
        return scores

    def _fit(self, position: int, telling: Sequence[_Telling]) -> _Fit:
        stems = self._merits[position].stems
        said = [word for word in telling if word.stem in stems]
        return _Fit(sum(word.share for word in said), tuple(word.written for word in said))

    def _reason(
        self, position: int, wish: Wish, fit: _Fit, failing: Collection[int], favours: Mapping[int, Favour]
    ) -> str:
        merits = self._merits[position]
        parts = [favours[position].reason] if position in favours else []
        if fit.words:
            said = " and ".join(f"“{word}”" for word in fit.words[:3])
            parts.append(f"says {said} like the request")
        if wish.languages:
            tags = ", ".join(sorted(wish.languages))
            parts.append(f"{'knows' if _spoken(merits, wish) >= 0 else 'does not name'} {tags}")
        parts.append(merits.presence.value)
        if merits.median is not None:
            parts.append(f"median {_duration(merits.median)}")
        if merits.external:
            parts.append("outside the house")
        if position in failing:
            parts.append("has been failing")
        return "; ".join(parts)


def _popularity(merits: Merits) -> float:
    downloads = min(1.0, math.log10(1 + merits.downloads) / 8)
    likes = min(1.0, math.log10(1 + merits.likes) / 5)
    return _POPULAR * (2 * downloads + likes) / 3


def _slowness(merits: Merits) -> float:
    if merits.median is None or merits.median <= PROMPT_SECONDS:
        return 0.0
    return _SLOW * math.log10(merits.median / PROMPT_SECONDS)


def _spoken(merits: Merits, wish: Wish) -> float:
    if not merits.languages:
        return 0.0
    return _SPOKEN if wish.languages <= merits.languages else _UNSPOKEN


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
