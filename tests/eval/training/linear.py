"""Training of linear scores: which intents a request has, which come first and last, and their number.

Method: support vector machines over naive Bayes log-count ratios (Wang & Manning, "Baselines and Bigrams: Simple, Good
Sentiment and Topic Classification", ACL 2012), with counts weighted by rarity.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags
from sklearn.svm import LinearSVC

from services.planner.embedded.learned.evidence import measured
from services.planner.embedded.learned.features import Family, Feature, features
from services.planner.embedded.learned.weights import SIZES
from tests.eval.training.examples import Example

FEWEST_REQUESTS = {Family.PAIR: 3, Family.PART: 3, Family.PHRASE: 2}
"""Smallest number of requests with a feature, by family; rarer features are omitted."""

_SOFTNESS = 0.3
_RATIO_POWER = 0.7
"""Chosen among 0.7, 1 and 1.5 by cross-validation."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Vocabulary:
    """Features by column, with their families and inverse document frequencies."""

    features: dict[Feature, int]
    families: Array
    rarity: Array

    def matrix(self, given: Sequence[Example]) -> csr_matrix:
        """Matrix of requests and features."""
        columns, values, ends = [], [], [0]
        for example in given:
            counts = Counter(self.features[one] for one, _ in features(example.tokens) if one in self.features)
            known = np.fromiter(counts, dtype=np.int64, count=len(counts))
            columns.append(known)
            values.append(measured(known, np.fromiter(counts.values(), dtype=np.float32, count=len(counts)), self))
            ends.append(ends[-1] + len(known))
        shape = (len(given), len(self.features))
        return csr_matrix((np.concatenate(values), np.concatenate(columns), ends), shape=shape)


def vocabulary(given: Sequence[Example]) -> Vocabulary:
    counts = Counter[Feature]()
    for example in given:
        counts.update({feature for feature, _ in features(example.tokens)})
    kept = sorted(feature for feature, count in counts.items() if count >= FEWEST_REQUESTS[feature[0]])
    return Vocabulary(
        features={feature: column for column, feature in enumerate(kept)},
        families=np.array([family for family, _ in kept], dtype=np.int8),
        rarity=np.array([np.log((1 + len(given)) / (1 + counts[one])) + 1 for one in kept], dtype=np.float32),
    )


def targets(given: Sequence[Example], intents: int) -> Array:
    """Labels, requests x (3 intents + 4): present, first, last, and at least so many tasks."""
    result = np.zeros((len(given), 3 * intents + len(SIZES)), dtype=np.int8)
    for row, example in enumerate(given):
        result[row, list(example.intents)] = 1
        result[row, [intents + one for one in example.first]] = 1
        result[row, [2 * intents + one for one in example.last]] = 1
        result[row, 3 * intents :] = [len(example.intents) >= size for size in SIZES]
    return result


def fitted(matrix: csr_matrix, labels: Array) -> tuple[Array, Array]:
    """Weights (features x columns) and biases; columns with only one class get zero weights and a negative bias."""
    columns, biases = [], []
    for column in labels.T:
        weight, bias = _column(matrix, column) if column.any() and not column.all() else (np.zeros(matrix.shape[1]), -1)
        columns.append(weight)
        biases.append(bias)
    return np.array(columns, dtype=np.float32).T, np.array(biases, dtype=np.float32)


def _column(matrix: csr_matrix, column: Array) -> tuple[Array, float]:
    ratio = _ratio(matrix, column)
    machine = LinearSVC(C=_SOFTNESS, random_state=0).fit(matrix @ diags(ratio), column)
    return machine.coef_[0] * ratio, float(machine.intercept_[0])


def _ratio(matrix: csr_matrix, column: Array) -> Array:
    """Dampened log-count ratio of each feature between requests of the column and others."""
    there = (matrix > 0).astype(np.float64)
    yes, no = (np.asarray(there[column == side].sum(axis=0)).ravel() + 1 for side in (1, 0))
    ratio = np.log((yes / (column.sum() + 2)) / (no / ((1 - column).sum() + 2)))
    dampened: Array = np.sign(ratio) * np.abs(ratio) ** _RATIO_POWER
    return dampened
