"""What is about the same as a request: texts compared by their words and parts of words, rare ones weighing more."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from services.planner.plan import Catalogue, Modality, Spec

PART = 4
"""Letters of the parts by which inflected words are alike."""

_WORDS = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
_WHOLE, _PART = 2, 1

_FITS, _USUAL = 0.05, 0.05
"""What it counts that the files of a request fit a task, and that it is much used; words that match count up to 1."""

_MUCH = 10
"""Uses from which a task is much used."""


Likeness = Callable[[int, int], float]


class Index:
    """Texts to be compared with others."""

    def __init__(self, texts: Sequence[str]) -> None:
        counted = [_features(text) for text in texts]
        found_in = Counter(feature for features in counted for feature in features)
        self._weights = {feature: math.log(1 + len(texts) / count) for feature, count in found_in.items()}
        self._vectors = [self._vector(features) for features in counted]
        self._where: dict[str, list[int]] = {}
        for position, vector in enumerate(self._vectors):
            for feature in vector:
                self._where.setdefault(feature, []).append(position)

    def scores(self, text: str) -> list[float]:
        """How much each text is like this one, 0 to 1."""
        found = [0.0] * len(self._vectors)
        for feature, weight in self._vector(_features(text)).items():
            for position in self._where.get(feature, ()):
                found[position] += weight * self._vectors[position][feature]
        return found

    def likeness(self, one: int, other: int) -> float:
        """How much two of the texts are alike, 0 to 1."""
        theirs = self._vectors[other]
        return sum(weight * theirs.get(feature, 0.0) for feature, weight in self._vectors[one].items())

    def _vector(self, features: Mapping[str, int]) -> Mapping[str, float]:
        weighed = {
            feature: (1 + math.log(count)) * self._weights[feature]
            for feature, count in features.items()
            if feature in self._weights
        }
        length = math.sqrt(sum(weight * weight for weight in weighed.values())) or 1.0
        return {feature: weight / length for feature, weight in weighed.items()}


def varied(scores: Mapping[int, float], likeness: Likeness, *, count: int, variety: float) -> list[int]:
    """The best positions that are not all alike, best first.

    Args:
        scores: of the positions there are to choose from.
        likeness: of two of them, 0 to 1.
        count: how many are wanted.
        variety: 0 takes the best scores, 1 the least alike.
    """
    best_score = max(scores.values(), default=0.0) or 1.0
    chosen: list[int] = []
    nearest = dict.fromkeys(scores, 0.0)
    while nearest and len(chosen) < count:
        best = max(
            nearest,
            key=lambda position: (1 - variety) * scores[position] / best_score - variety * nearest[position],
        )
        chosen.append(best)
        del nearest[best]
        for position in nearest:
            nearest[position] = max(nearest[position], likeness(best, position))
    return chosen


class Shelf:
    """The tasks of a catalogue, to be shown in the order in which a request is likely to need them."""

    def __init__(self, catalogue: Catalogue, used: Mapping[str, int] | None = None) -> None:
        """Takes the tasks, and how often each is used, as far as that is known."""
        self._specs = tuple(catalogue.values())
        self._usual = {name: _USUAL * min(uses, _MUCH) / _MUCH for name, uses in (used or {}).items()}
        self._index = Index([f"{spec.name} {spec.description} {' '.join(spec.examples)}" for spec in self._specs])

    def ordered(self, words: str, given: Collection[Modality], sure: Collection[str] = ()) -> list[Spec]:
        """All tasks: those of which one is sure, then by words and fit, each followed by what makes what it needs.

        Args:
            words: the request.
            given: what its files are.
            sure: names of tasks to be shown in any case.
        """
        likely = self._index.scores(words)
        rank = {
            spec.name: score + (_FITS if _fits(spec, given) else 0.0) + self._usual.get(spec.name, 0.0)
            for spec, score in zip(self._specs, likely, strict=True)
        }
        ranked = sorted(self._specs, key=lambda spec: (spec.name not in sure, -rank[spec.name]))
        makers = self._makers(given, rank)
        there = {Modality.TEXT, *given}
        return list(dict.fromkeys(found for spec in ranked for found in (spec, *_needed(spec, there, makers))))

    def _makers(self, given: Collection[Modality], rank: Mapping[str, float]) -> Mapping[Modality, Spec]:
        """Who best makes each modality: if possible of what there is."""
        by_worth = sorted(self._specs, key=lambda spec: (_possible(spec, given), rank[spec.name]))
        return {made.modality: spec for spec in by_worth for made in spec.outputs}


def _needed(spec: Spec, there: Collection[Modality], makers: Mapping[Modality, Spec]) -> Iterator[Spec]:
    missing = (port.modality for port in spec.inputs if port.required and port.modality not in there)
    return (makers[modality] for modality in missing if modality in makers)


def _fits(spec: Spec, given: Collection[Modality]) -> bool:
    return any(port.modality in given for port in spec.inputs if port.required)


def _possible(spec: Spec, given: Collection[Modality]) -> bool:
    return all(port.modality in {Modality.TEXT, *given} for port in spec.inputs if port.required)


def _features(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for word in _WORDS.findall(text.casefold()):
        if _UNSPACED.search(word):
            found.update(dict.fromkeys(map("".join, pairwise(word)), _WHOLE) or {word: _WHOLE})
        else:
            found[word] += _WHOLE
            found.update(dict.fromkeys(_parts(word), _PART))
    return found


def _parts(word: str) -> Iterator[str]:
    edged = f"^{word}$"
    return (edged[start : start + PART] for start in range(len(edged) - PART + 1))
