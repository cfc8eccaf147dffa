"""Beam search over graphs: the best ways to order and link the senses that the words speak for, with probabilities."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from services.planner.embedded.learned.moves import Move, ending, moving
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


@dataclass(frozen=True)
class Graph:
    """Senses, and which feeds which, as places among all senses."""

    senses: frozenset[int]
    links: frozenset[tuple[int, int]]


def parse(tried: Candidates, learned: Weights) -> dict[Graph, float]:
    """The likely graphs, with probabilities that sum to 1."""
    static = tried.static @ learned.step[: tried.static.shape[-1]] + tried.pairs + tried.instead
    dynamic = learned.step[tried.static.shape[-1] :]
    alive: list[tuple[float, tuple[Move, ...]]] = [(0.0, ())]
    found: dict[Graph, float] = defaultdict(float)
    while alive:
        longer: list[tuple[float, tuple[Move, ...]]] = []
        for weight, taken in alive:
            producers, scores, end = _scores(tried, taken, static, dynamic, learned)
            top = max(float(scores.max(initial=-np.inf)), end)
            total = top + np.log(np.exp(scores - top).sum() + np.exp(end - top))
            found[_graph(tried, taken)] += float(np.exp(weight + end - total))
            if len(taken) < MOST:
                longer += _carried_on(weight - total, taken, producers, scores)
        longer.sort(key=lambda one: -one[0])
        alive = longer[:WIDTH]
    whole = sum(found.values())
    return {graph: share / whole for graph, share in found.items()}


def _scores(
    tried: Candidates, taken: tuple[Move, ...], static: np.ndarray, dynamic: np.ndarray, learned: Weights
) -> tuple[list[int], np.ndarray, float]:
    producers, features = moving(tried, taken)
    added = [place for place, _ in taken]
    scores = static[producers] + features @ dynamic + tried.beside[added].sum(axis=0)
    scores[:, added] = -np.inf
    return producers, scores, float(ending(tried, taken) @ learned.end)


def _carried_on(
    weight: float, taken: tuple[Move, ...], producers: list[int], scores: np.ndarray
) -> list[tuple[float, tuple[Move, ...]]]:
    best = np.argsort(-scores, axis=None)[:BRANCHES]
    rows, places = np.unravel_index(best, scores.shape)
    return [
        (float(weight + scores[row, place]), (*taken, (int(place), producers[row])))
        for row, place in zip(rows, places, strict=True)
        if weight + scores[row, place] > _HOPELESS
    ]


def _graph(tried: Candidates, taken: tuple[Move, ...]) -> Graph:
    senses = tried.senses
    return Graph(
        frozenset(int(senses[place]) for place, _ in taken),
        frozenset((int(senses[producer]), int(senses[place])) for place, producer in taken if producer != SENT),
    )
