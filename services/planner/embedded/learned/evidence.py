"""Linear scores of every intent, and the position of the words that call for it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from services.planner.embedded.learned.features import Family, Token, features
from services.planner.embedded.learned.weights import SIZES, Weights

SLOPE, OFFSET = 5.6, 1.25
"""From a margin to log odds: a logistic regression over margins of requests that were held out."""

_KERNEL = (0.25, 0.5, 1.0, 0.5, 0.25)
_PEAK_WIDTH = 4
"""Tokens on either side of a peak that its position is averaged over."""

_ORIGINAL = frozenset(("original", "source", "initial", "unedited", "untouched"))

Array = npt.NDArray[np.float32]

Occurrence = tuple[int, tuple[int, ...]]
"""A feature, and the tokens it is made of there."""


class FeatureStatistics(Protocol):
    """F features, as Weights has them."""

    @property
    def families(self) -> npt.NDArray[np.int8]: ...

    @property
    def rarity(self) -> Array: ...


@dataclass(frozen=True)
class Evidence:
    """Of one request; S intents, all scores are log odds."""

    called: Array
    """S: the intent is among the tasks."""
    first: Array
    """S: it is, and takes what was sent."""
    last: Array
    """S: it is, and no task takes its output."""
    larger: Array
    """4: there are at least 2, 3, 4, 5 tasks."""
    position: Array
    """S: the token where the request calls for it."""
    strength: Array
    """S: its share of the margin there."""
    original: Array
    """S: 1 where adjacent words refer to the original."""
    length: int
    """Tokens of the request, at least 1."""


def evidence(found: list[Token], learned: Weights) -> Evidence:
    """The scores of one request."""
    occurrences = [
        (learned.features[feature], where) for feature, where in features(found) if feature in learned.features
    ]
    counts = Counter(feature for feature, _ in occurrences)
    known = np.fromiter(counts, dtype=np.int64, count=len(counts))
    times: Array = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
    values = measured(known, times, learned)
    rows = learned.linear[known]
    odds = SLOPE * (values @ rows + learned.bias) + OFFSET
    intents = len(learned.intents)
    columns = {feature: column for column, feature in enumerate(counts)}
    parts = _parts(occurrences, columns, values / times)
    position, strength = _peaks(_contributions(parts, rows[:, :intents], max(1, len(found))))
    mentions = [i for i, token in enumerate(found) if token.word in _ORIGINAL]
    return Evidence(
        odds[:intents],
        odds[intents : 2 * intents],
        odds[2 * intents : 3 * intents],
        odds[3 * intents : 3 * intents + len(SIZES)],
        position,
        strength,
        np.array([any(abs(i - at) <= _PEAK_WIDTH for i in mentions) for at in position], dtype=np.float32),
        max(1, len(found)),
    )


def measured(known: npt.NDArray[np.int64], counts: Array, learned: FeatureStatistics) -> Array:
    """Weighted by rarity, of length 1 within each family of features."""
    values = (1 + np.log(counts)) * learned.rarity[known]
    for family in Family:
        mine = learned.families[known] == family
        length = float(np.sqrt((values[mine] ** 2).sum()))
        if length:
            values[mine] /= length
    return values.astype(np.float32)


def _parts(occurrences: list[Occurrence], columns: Mapping[int, int], values: Array) -> list[tuple[int, int, float]]:
    """Share of each feature's value by token: (token, column, part)."""
    parts = []
    for feature, where in occurrences:
        column = columns[feature]
        part = float(values[column]) / len(where)
        parts += [(token, column, part) for token in where]
    return parts


def _contributions(parts: list[tuple[int, int, float]], rows: Array, length: int) -> Array:
    """T x S: what each token adds to the margin of each intent."""
    result = np.zeros((length, rows.shape[1]), dtype=np.float32)
    if parts:
        token, column, part = (np.array(one) for one in zip(*sorted(parts), strict=True))
        tokens, starts = np.unique(token, return_index=True)
        result[tokens] = np.add.reduceat(rows[column] * part[:, None].astype(np.float32), starts)
    return result


def _peaks(contributions: Array) -> tuple[Array, Array]:
    """Of T x S contributions: where each intent's highest point is, and how high."""
    length, intents = contributions.shape
    padded = np.pad(contributions, ((2, 2), (0, 0)))
    shifted = np.stack([weight * padded[i : i + length] for i, weight in enumerate(_KERNEL)])
    smooth = np.maximum(shifted.sum(axis=0), 0)
    peak = smooth.argmax(axis=0)
    at = np.arange(length)[:, None]
    near = np.where(np.abs(at - peak) <= _PEAK_WIDTH, smooth, 0) ** 2
    mass = near.sum(axis=0)
    position = np.where(mass > 0, (near * at).sum(axis=0) / np.maximum(mass, 1e-9), peak)
    return position.astype(np.float32), smooth[peak, np.arange(intents)]
