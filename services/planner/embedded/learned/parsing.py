"""Beam search over graphs: the best ways to order and link the intents that the words speak for, with probabilities."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from services.planner.embedded.learned.moves import Array, Move, Underway, ending, moving, underway
from services.planner.embedded.learned.stages import SENT, Candidates
from services.planner.embedded.learned.weights import Weights

WIDTH = 16
"""Unfinished graphs that are carried on."""

BRANCHES = 6
"""Ways in which each is carried on."""

MOST = 8
"""Most tasks in one graph: the benchmark's longest have as many."""

_HOPELESS = -9.0
"""Log probability below which a graph is given up."""


Partial: TypeAlias = tuple[float, tuple[Move, ...]]
"""A graph that is not complete, and the log probability with which it is begun."""


@dataclass(frozen=True)
class Graph:
    """Senses, and which feeds which, as places among all intents."""

    intents: frozenset[int]
    links: frozenset[tuple[int, int]]


def parse(tried: Candidates, learned: Weights) -> dict[Graph, float]:
    """The likely graphs, with probabilities that sum to 1."""
    static = tried.static @ learned.step[: tried.static.shape[-1]] + tried.pairs + tried.instead
    dynamic = learned.step[tried.static.shape[-1] :]
    alive: list[Partial] = [(0.0, ())]
    found: dict[Graph, float] = defaultdict(float)
    while alive:
        so_far = underway(tried, [taken for _, taken in alive])
        scores, ends = _scores(tried, so_far, static, dynamic, learned)
        totals = _totals(scores, ends)
        for (weight, taken), end, total in zip(alive, ends, totals, strict=True):
            found[_graph(tried, taken)] += float(np.exp(weight + end - total))
        longer = _carried_on(alive, so_far, scores, totals) if so_far.count < MOST else []
        longer.sort(key=lambda one: -one[0])
        alive = longer[:WIDTH]
    whole = sum(found.values())
    return {graph: share / whole for graph, share in found.items()}


def _scores(
    tried: Candidates, so_far: Underway, static: Array, dynamic: Array, learned: Weights
) -> tuple[Array, Array]:
    """G x P x C: of adding each candidate to each producer; and G: of ending."""
    scores = static[so_far.producers] + moving(tried, so_far) @ dynamic
    scores += tried.beside[so_far.added].sum(axis=1)[:, None]
    np.copyto(scores, -np.inf, where=so_far.left[:, None] == 0)
    return scores, ending(tried, so_far) @ learned.end


def _totals(scores: Array, ends: Array) -> Array:
    """G: the logarithms of the sums that make probabilities of both."""
    top = np.maximum(scores.max(axis=(1, 2), initial=-np.inf), ends)
    return np.asarray(top + np.log(np.exp(scores - top[:, None, None]).sum(axis=(1, 2)) + np.exp(ends - top)))


def _carried_on(alive: Sequence[Partial], so_far: Underway, scores: Array, totals: Array) -> list[Partial]:
    """Each graph with one task more, in the best ways."""
    flat = scores.reshape(len(scores), -1)
    best = np.argsort(-flat, axis=1)[:, :BRANCHES]
    values = np.take_along_axis(flat, best, axis=1) - totals[:, None]
    rows, places = np.divmod(best, scores.shape[2])
    feeders = np.take_along_axis(so_far.producers, rows, axis=1)
    return [
        (weight + value, (*taken, (place, feeder)))
        for (weight, taken), *ways in zip(alive, values.tolist(), places.tolist(), feeders.tolist(), strict=True)
        for value, place, feeder in zip(*ways, strict=True)
        if weight + value > _HOPELESS
    ]


def _graph(tried: Candidates, taken: tuple[Move, ...]) -> Graph:
    intents = tried.intents
    return Graph(
        frozenset(int(intents[place]) for place, _ in taken),
        frozenset((int(intents[producer]), int(intents[place])) for place, producer in taken if producer != SENT),
    )
