"""Beam search over graphs: the likely ways to order and link the candidate intents, with probabilities."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from services.planner.embedded.learned.candidates import SENT, Candidates
from services.planner.embedded.learned.move_features import (
    Array,
    Move,
    PartialGraphs,
    end_features,
    move_features,
    partial_graphs,
)
from services.planner.embedded.learned.weights import Weights

WIDTH = 16
"""Unfinished graphs that are extended in each round."""

BRANCHES = 6
"""Extensions of each."""

MOST = 8
"""Most tasks in one graph: the benchmark's longest have as many."""

_HOPELESS = -9.0
"""Log probability below which a graph is dropped."""


Hypothesis: TypeAlias = tuple[float, tuple[Move, ...]]
"""Log probability of an unfinished graph, and its moves."""


@dataclass(frozen=True)
class Graph:
    """Intents and their links (producer, consumer), as indexes among all intents."""

    intents: frozenset[int]
    links: frozenset[tuple[int, int]]


def parse(tried: Candidates, learned: Weights) -> dict[Graph, float]:
    """The likely graphs, with probabilities that sum to 1."""
    static = tried.static @ learned.step[: tried.static.shape[-1]] + tried.pairs + tried.alternatives
    dynamic = learned.step[tried.static.shape[-1] :]
    hypotheses: list[Hypothesis] = [(0.0, ())]
    found: dict[Graph, float] = defaultdict(float)
    while hypotheses:
        partial = partial_graphs(tried, [moves for _, moves in hypotheses])
        scores, ends = _scores(tried, partial, static, dynamic, learned)
        totals = _totals(scores, ends)
        for (weight, moves), end, total in zip(hypotheses, ends, totals, strict=True):
            found[_graph(tried, moves)] += float(np.exp(weight + end - total))
        longer = _extended(hypotheses, partial, scores, totals) if partial.count < MOST else []
        longer.sort(key=lambda one: -one[0])
        hypotheses = longer[:WIDTH]
    whole = sum(found.values())
    return {graph: share / whole for graph, share in found.items()}


def _scores(
    tried: Candidates, partial: PartialGraphs, static: Array, dynamic: Array, learned: Weights
) -> tuple[Array, Array]:
    """G x P x C: scores of adding each candidate to each producer; and G: of ending."""
    scores = static[partial.producers] + move_features(tried, partial) @ dynamic
    scores += tried.cooccurrence[partial.added].sum(axis=1)[:, None]
    np.copyto(scores, -np.inf, where=partial.left[:, None] == 0)
    return scores, end_features(tried, partial) @ learned.end


def _totals(scores: Array, ends: Array) -> Array:
    """G: logarithms of the sums that normalize both."""
    top = np.maximum(scores.max(axis=(1, 2), initial=-np.inf), ends)
    return np.asarray(top + np.log(np.exp(scores - top[:, None, None]).sum(axis=(1, 2)) + np.exp(ends - top)))


def _extended(
    hypotheses: Sequence[Hypothesis], partial: PartialGraphs, scores: Array, totals: Array
) -> list[Hypothesis]:
    """Each graph with one more task, in its most probable extensions."""
    flat = scores.reshape(len(scores), -1)
    best = np.argsort(-flat, axis=1)[:, :BRANCHES]
    values = np.take_along_axis(flat, best, axis=1) - totals[:, None]
    rows, candidates = np.divmod(best, scores.shape[2])
    feeders = np.take_along_axis(partial.producers, rows, axis=1)
    return [
        (weight + value, (*moves, (candidate, feeder)))
        for (weight, moves), *extensions in zip(
            hypotheses, values.tolist(), candidates.tolist(), feeders.tolist(), strict=True
        )
        for value, candidate, feeder in zip(*extensions, strict=True)
        if weight + value > _HOPELESS
    ]


def _graph(tried: Candidates, moves: tuple[Move, ...]) -> Graph:
    intents = tried.intents
    return Graph(
        frozenset(int(intents[candidate]) for candidate, _ in moves),
        frozenset(
            (int(intents[producer]), int(intents[candidate])) for candidate, producer in moves if producer != SENT
        ),
    )
