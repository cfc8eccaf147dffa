"""Text similarity by words and character n-grams, weighted by inverse document frequency; ranking of tasks."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from services.planner.task_spec import Catalogue, Modality, Spec

PART = 4
"""Length of the character n-grams that match inflected words."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
_WHOLE_WORD, _NGRAM = 2, 1

_FITS, _USUAL = 0.05, 0.05
"""Bonus of a task that fits the files, and of an often used task; text similarity is between 0 and 1."""

_MUCH = 10
"""Number of uses for the full bonus."""


Similarity = Callable[[int, int], float]


class SimilarityIndex:
    """TF-IDF index of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        counted = [_features(text) for text in texts]
        document_counts = Counter(feature for features in counted for feature in features)
        self._weights = {feature: math.log(1 + len(texts) / count) for feature, count in document_counts.items()}
        self._vectors = [self._vector(features) for features in counted]
        self._where: dict[str, list[int]] = {}
        for position, vector in enumerate(self._vectors):
            for feature in vector:
                self._where.setdefault(feature, []).append(position)

    def scores(self, text: str) -> list[float]:
        """Similarity of each text to the given one, 0 to 1."""
        found = [0.0] * len(self._vectors)
        for feature, weight in self._vector(_features(text)).items():
            for position in self._where.get(feature, ()):
                found[position] += weight * self._vectors[position][feature]
        return found

    def similarity(self, first: int, second: int) -> float:
        """Similarity of two indexed texts, 0 to 1."""
        other_vector = self._vectors[second]
        return sum(weight * other_vector.get(feature, 0.0) for feature, weight in self._vectors[first].items())

    def _vector(self, features: Mapping[str, int]) -> Mapping[str, float]:
        weighed = {
            feature: (1 + math.log(count)) * self._weights[feature]
            for feature, count in features.items()
            if feature in self._weights
        }
        length = math.sqrt(sum(weight * weight for weight in weighed.values())) or 1.0
        return {feature: weight / length for feature, weight in weighed.items()}


def diversify(scores: Mapping[int, float], similarity: Similarity, *, count: int, variety: float) -> list[int]:
    """Selects positions by maximal marginal relevance, best first.

    Args:
        scores: of the candidate positions.
        similarity: of two positions, 0 to 1.
        count: number to select.
        variety: 0 selects the best scores, 1 the most varied.
    """
    best_score = max(scores.values(), default=0.0) or 1.0
    chosen: list[int] = []
    match_task = dict.fromkeys(scores, 0.0)
    while match_task and len(chosen) < count:
        best = max(
            match_task,
            key=lambda position: (1 - variety) * scores[position] / best_score - variety * match_task[position],
        )
        chosen.append(best)
        del match_task[best]
        for position in match_task:
            match_task[position] = max(match_task[position], similarity(best, position))
    return chosen


class TaskRanking:
    """Ranks the tasks of a catalogue by their relevance to a request."""

    def __init__(self, catalogue: Catalogue, used: Mapping[str, int] | None = None) -> None:
        """Indexes the catalogue; `used` counts known uses of tasks."""
        self._specs = tuple(catalogue.values())
        self._usual = {name: _USUAL * min(uses, _MUCH) / _MUCH for name, uses in (used or {}).items()}
        self._index = SimilarityIndex(
            [f"{spec.name} {spec.description} {' '.join(spec.examples)}" for spec in self._specs]
        )

    def ordered(self, text: str, sent: Collection[Modality], sure: Collection[str] = ()) -> list[Spec]:
        """Ranks all tasks: `sure` ones first, then by relevance, each followed by tasks that create its inputs.

        Args:
            text: of the request.
            sent: modalities of its files.
            sure: names of tasks that must come first.
        """
        likely = self._index.scores(text)
        rank = {
            spec.name: score + (_FITS if _fits(spec, sent) else 0.0) + self._usual.get(spec.name, 0.0)
            for spec, score in zip(self._specs, likely, strict=True)
        }
        ranked = sorted(self._specs, key=lambda spec: (spec.name not in sure, -rank[spec.name]))
        producers = self._producers(sent, rank)
        available = {Modality.TEXT, *sent}
        return list(dict.fromkeys(found for spec in ranked for found in (spec, *_needed(spec, available, producers))))

    def _producers(self, sent: Collection[Modality], rank: Mapping[str, float]) -> Mapping[Modality, Spec]:
        """Returns the best task that creates each modality, preferring tasks that can run with the given inputs."""
        ordered = sorted(self._specs, key=lambda spec: (_possible(spec, sent), rank[spec.name]))
        return {made.modality: spec for spec in ordered for made in spec.outputs}


def _needed(spec: Spec, available: Collection[Modality], producers: Mapping[Modality, Spec]) -> Iterator[Spec]:
    missing = (port.modality for port in spec.inputs if port.required and port.modality not in available)
    return (producers[modality] for modality in missing if modality in producers)


def _fits(spec: Spec, sent: Collection[Modality]) -> bool:
    return any(port.modality in sent for port in spec.inputs if port.required)


def _possible(spec: Spec, sent: Collection[Modality]) -> bool:
    return all(port.modality in {Modality.TEXT, *sent} for port in spec.inputs if port.required)


def _features(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for word in _WORD.findall(text.casefold()):
        if _UNSPACED.search(word):
            found.update(dict.fromkeys(map("".join, pairwise(word)), _WHOLE_WORD) or {word: _WHOLE_WORD})
        else:
            found[word] += _WHOLE_WORD
            found.update(dict.fromkeys(_parts(word), _NGRAM))
    return found


def _parts(word: str) -> Iterator[str]:
    edged = f"^{word}$"
    return (edged[start : start + PART] for start in range(len(edged) - PART + 1))
