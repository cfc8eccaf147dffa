"""Ranks the models of a task by described and measured features; descriptions match by stems of their words."""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from heapq import nlargest
from types import MappingProxyType
from typing import NamedTuple

FIT = 3.0
"""Highest score for matching terms; measured features add less, so that the best description wins."""

_SUPPORTED_LANGUAGE, _UNSUPPORTED_LANGUAGE = 0.3, -1.5
_POPULAR = 0.3
_SLOW = 0.2
"""Penalty for every tenfold of PROMPT_SECONDS."""
PROMPT_SECONDS = 0.05
"""Medians below this count as equal."""
_EXTERNAL = -10.0
_LLM = -2.0
"""The LLM of the deployment: after models made for the task, unless its description fits much better."""
_RULES_WITH_LLM = -8.0
"""Rules, if the LLM may be used: ranked after the LLM, even if their description fits better."""
_EXCEEDS_MEMORY = -4.0
"""More memory than its machine has: after models that fit, and still before external ones."""
_FAILING = -20.0

WEIGHED_CHARACTERS = 2000
"""Characters of a description that are used: a longer one gains nothing."""

_WORD = re.compile(r"[^\W_]+")
_SHORTEST = 3
"""Letters that a stem must have."""

_ENDINGS = (
    *("inesses", "iness", "ness", "iest", "ier", "ily", "ingly", "edly", "ely"),
    *("ions", "ion", "ings", "ing", "ies", "ied", "ors", "or", "ers", "er", "ed", "es", "ly", "s", "e", "y"),
)

_DENIED = re.compile(
    r"\b(?:(?:do(?:es)?|is|are) not|cannot|can't|doesn't|not|no|never|without|misses|except)\b[^.;:]*", re.IGNORECASE
)
"""A negated clause of a description."""

_COMMON = frozenset(
    _WORD.findall("""
    a about all also an and any are as at be been but by can could do does for from get give had has have he her his
    how i if in into is it its let like make many may me more much my no not of on one only or our out please say says
    she should show so some tell than that the their them then there these they this those to up us use used want was
    we were what when whether which who will with would you your
    """)
)


class Readiness(Enum):
    """State of a model: how soon it can run."""

    READY = "loaded"
    LOADABLE = "to be loaded"
    UNREACHABLE = "unreachable"
    DORMANT = "scaled to zero"


_READINESS_SCORES = {
    Readiness.READY: 1.0,
    Readiness.LOADABLE: 0.9,
    Readiness.UNREACHABLE: -0.6,
    Readiness.DORMANT: -0.8,
}


@dataclass(frozen=True, slots=True)
class ModelFeatures:
    """Known features of a model."""

    stems: frozenset[str]
    """Stems of its name and description."""
    readiness: Readiness
    external: bool = False
    median: float | None = None
    """Median duration of a call in seconds; None: not measured."""
    downloads: int = 0
    likes: int = 0
    languages: frozenset[str] = frozenset()
    """Primary language tags; empty: any language."""
    is_llm: bool = False
    """Whether it is the LLM of the deployment, by prompt."""
    is_rules: bool = False
    """Whether it works by rules or statistics."""
    exceeds_memory: bool = False
    """Whether it needs more memory than its machine has."""


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A term of the request."""

    written: str
    weight: float


@dataclass(frozen=True, slots=True)
class RankingQuery:
    """What the models are ranked by."""

    terms: Mapping[str, QueryTerm]
    """By stem."""
    languages: frozenset[str] = frozenset()
    """Primary language tags that the task names."""
    internal_first: bool = True


class Bonus(NamedTuple):
    """Points added to a model's score by another source than the ranking, such as the routing table."""

    points: float
    reason: str


class Ranked(NamedTuple):
    """A ranked model."""

    position: int
    """Index among the given models."""
    score: float
    fit: float
    """Between 0 and 1: share of the discriminating terms that the model matches."""
    reason: str


class _WeightedTerm(NamedTuple):
    """A term that some models match and others do not."""

    stem: str
    written: str
    share: float
    """Share of the total weight of all such terms."""


class _Fit(NamedTuple):
    share: float
    matched: tuple[str, ...]


class Ranking:
    """Ranks models of one task; ties are resolved by their order."""

    def __init__(self, features: Sequence[ModelFeatures]) -> None:
        self._features = features

    def best(
        self,
        query: RankingQuery,
        admitted: Collection[int],
        limit: int,
        failing: Collection[int],
        bonuses: Mapping[int, Bonus] = MappingProxyType({}),
    ) -> list[Ranked]:
        """The best models, best first.

        Args:
            query: terms and languages of the request.
            admitted: indices of the models that may be selected.
            limit: number of models.
            failing: indices of models with open circuits, which are ranked last.
            bonuses: by index.
        """
        terms = self._weighted_terms(query)
        scores = self._scores(query, terms, failing)
        if any(position in admitted and position not in failing for position in self._llms):
            for position in self._rules:
                scores[position] += _RULES_WITH_LLM
        for position, bonus in bonuses.items():
            scores[position] += bonus.points
        return [
            Ranked(
                position, round(scores[position], 4), fit.share, self._reason(position, query, fit, failing, bonuses)
            )
            for position in nlargest(limit, admitted, key=scores.__getitem__)
            for fit in (self._fit(position, terms),)
        ]

    @cached_property
    def _base_scores(self) -> list[float]:
        """Score of each model, independent of the query."""
        return [
            _READINESS_SCORES[features.readiness]
            + _popularity(features)
            - _slowness(features)
            + (_LLM if features.is_llm else 0.0)
            + (_EXCEEDS_MEMORY if features.exceeds_memory else 0.0)
            for features in self._features
        ]

    @cached_property
    def _holders(self) -> dict[str, list[int]]:
        """Indices of the models that match a term, by stem."""
        holders: dict[str, list[int]] = defaultdict(list)
        for position, features in enumerate(self._features):
            for stem in features.stems:
                holders[stem].append(position)
        return holders

    @cached_property
    def _external(self) -> list[int]:
        """Indices of the external models but the deployment's LLM, which the operator configured for such tasks."""
        return [
            position for position, features in enumerate(self._features) if features.external and not features.is_llm
        ]

    @cached_property
    def _llms(self) -> list[int]:
        return [position for position, features in enumerate(self._features) if features.is_llm]

    @cached_property
    def _rules(self) -> list[int]:
        return [position for position, features in enumerate(self._features) if features.is_rules]

    @cached_property
    def _with_languages(self) -> list[int]:
        """Indices of the models that support only some languages."""
        return [position for position, features in enumerate(self._features) if features.languages]

    def _weighted_terms(self, query: RankingQuery) -> list[_WeightedTerm]:
        """Weights of the query's terms, higher for rarer ones; a term that all models match, or none, has no weight."""
        held = [(stem, term, len(self._holders.get(stem, ()))) for stem, term in query.terms.items()]
        worth = [
            (stem, term.written, term.weight * math.log(len(self._features) / holders))
            for stem, term, holders in held
            if 0 < holders < len(self._features)
        ]
        total = sum(value for _, _, value in worth)
        return [_WeightedTerm(stem, written, value / total) for stem, written, value in worth]

    def _scores(self, query: RankingQuery, terms: Sequence[_WeightedTerm], failing: Iterable[int]) -> list[float]:
        """Scores of all models; visits only those that a term or flag concerns, since there may be ten thousand."""
        scores = self._base_scores.copy()
        for term in terms:
            for position in self._holders[term.stem]:
                scores[position] += FIT * term.share
        if query.languages:
            for position in self._with_languages:
                scores[position] += _language_score(self._features[position], query)
        for position in self._external if query.internal_first else ():
            scores[position] += _EXTERNAL
        for position in failing:
            scores[position] += _FAILING
        return scores

    def _fit(self, position: int, terms: Sequence[_WeightedTerm]) -> _Fit:
        stems = self._features[position].stems
        matched = [term for term in terms if term.stem in stems]
        return _Fit(sum(term.share for term in matched), tuple(term.written for term in matched))

    def _reason(
        self, position: int, query: RankingQuery, fit: _Fit, failing: Collection[int], bonuses: Mapping[int, Bonus]
    ) -> str:
        features = self._features[position]
        parts = [bonuses[position].reason] if position in bonuses else []
        if fit.matched:
            matched = " and ".join(f"“{term}”" for term in fit.matched[:3])
            parts.append(f"matches {matched} of the request")
        if query.languages:
            tags = ", ".join(sorted(query.languages))
            parts.append(f"{'supports' if _language_score(features, query) >= 0 else 'does not name'} {tags}")
        if features.is_llm:
            parts.append("the configured LLM")
        if features.exceeds_memory:
            parts.append("needs more memory than its machine has")
        parts.append(features.readiness.value)
        if features.median is not None:
            parts.append(f"median {_duration(features.median)}")
        if features.external:
            parts.append("external")
        if position in failing:
            parts.append("has been failing")
        return "; ".join(parts)


def _popularity(features: ModelFeatures) -> float:
    downloads = min(1.0, math.log10(1 + features.downloads) / 8)
    likes = min(1.0, math.log10(1 + features.likes) / 5)
    return _POPULAR * (2 * downloads + likes) / 3


def _slowness(features: ModelFeatures) -> float:
    if features.median is None or features.median <= PROMPT_SECONDS:
        return 0.0
    return _SLOW * math.log10(features.median / PROMPT_SECONDS)


def _language_score(features: ModelFeatures, query: RankingQuery) -> float:
    if not features.languages:
        return 0.0
    return _SUPPORTED_LANGUAGE if query.languages <= features.languages else _UNSUPPORTED_LANGUAGE


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


# ---------------------------------------------------------------- terms


def affirmed(description: str) -> str:
    """The description without negated clauses: "does not detect topics" must not match a request about topics."""
    return _DENIED.sub(" ", description)


def tokenize(text: str) -> Iterator[tuple[str, str]]:
    """The terms of a text, each with its stem and as written, in order."""
    for match in _WORD.finditer(text):
        written = match[0].lower()
        if written not in _COMMON:
            yield stem(written), written


@lru_cache(maxsize=65_536)
def stems(name: str, description: str) -> frozenset[str]:
    """Stems of a model's name and description; cached, since cards are read repeatedly."""
    return stemmed(f"{name} {affirmed(description[:WEIGHED_CHARACTERS])}")


def stemmed(text: str) -> frozenset[str]:
    """The stems of a text's words."""
    written = {word.lower() for word in set(_WORD.findall(text))}
    return frozenset(map(stem, written - _COMMON))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The word without its ending, so that face and faces, happy and happiness are equal."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST and (ending != "s" or word[-2] != "s"):
            word = word.removesuffix(ending)
            break
    doubled = len(word) > _SHORTEST and word[-1] == word[-2]
    return word[:-1] if doubled else word
