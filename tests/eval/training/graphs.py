"""Training of the steps that build a graph: each step adds one task to the graph or ends it.

Method: a log-linear model of each step (a maximum entropy Markov model), fitted by L-BFGS.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from services.planner.embedded.learned.candidates import SENT, Candidates, candidates
from services.planner.embedded.learned.evidence import Evidence
from services.planner.embedded.learned.move_features import Move, end_features, move_features, partial_graphs
from services.planner.embedded.learned.weights import Weights
from tests.eval.training.examples import Example, sent

_PENALTIES = (0.01, 0.01, 0.5, 1.0, 1.0)
"""L2 penalties of steps, ends, pairs, cooccurrence and alternatives."""

_ROUNDS = 150
_FITTING, _ANY = 0.3, 0.02
"""Pseudo-counts of links: where the modalities match, and everywhere."""

Array = npt.NDArray[Any]


def usual_links(given: Sequence[Example], fits: Array) -> Array:
    """Log ratio of the frequency of each link between intents, or from the request's inputs, to chance."""
    intents = fits.shape[1]
    counts = _FITTING * fits + _ANY
    for example in given:
        for producer, consumer in sent(example.links, example.intents):
            counts[intents if producer == SENT else producer, consumer] += 1
    usual: Array = np.log(counts / counts.sum(axis=0) * intents).astype(np.float32)
    return usual


@dataclass(frozen=True)
class _Choice:
    """One step of one request: its N alternatives, and the right one.

    Attributes:
        features: N x D, of every alternative.
        pairs: N, producer and consumer as one number.
        consumers: N.
        end: features of ending the graph.
        right: index of the right alternative; N is the end.
        taken: S, 1 for intents in the graph already.
        likely: S, probabilities of the intents.
    """

    features: Array
    pairs: Array
    consumers: Array
    end: Array
    right: int
    taken: Array
    likely: Array


@dataclass(frozen=True)
class Numbers:
    """Fitted parameters, named as in Weights."""

    step: Array
    end: Array
    pairs: Array
    cooccurrence: Array
    alternatives: Array


def fitted(given: Sequence[Example], scores: Sequence[Evidence], learned: Weights) -> Numbers:
    """Fits the parameters by maximum likelihood of the right steps."""
    choices = [
        choice
        for example, evidence in zip(given, scores, strict=True)
        for choice in _choices(example, evidence, learned)
    ]
    return _Fit(choices, len(learned.intents)).result()


def _choices(example: Example, found: Evidence, learned: Weights) -> Iterator[_Choice]:
    tried = candidates(found, example.hints, learned)
    intents = len(learned.intents)
    likely = 1 / (1 + np.exp(-found.called))
    order = _order(example, tried)
    for count in range(len(order) + 1):
        taken = order[:count]
        partial = partial_graphs(tried, [taken])
        producers, (features,), (end,) = (
            partial.producers[0].tolist(),
            move_features(tried, partial),
            end_features(tried, partial),
        )
        free = [place for place in range(len(tried.intents)) if place not in {added for added, _ in taken}]
        whole = np.concatenate([tried.static[producers], features], axis=-1)[:, free]
        of_producers = np.array([intents if producer == SENT else tried.intents[producer] for producer in producers])
        consumers = np.tile(tried.intents[free], len(producers))
        there = np.zeros(intents)
        there[[tried.intents[added] for added, _ in taken]] = 1
        right = len(consumers)
        if count < len(order):
            place, producer = order[count]
            right = producers.index(producer) * len(free) + free.index(place)
        yield _Choice(
            whole.reshape(-1, whole.shape[-1]),
            np.repeat(of_producers, len(free)) * intents + consumers,
            consumers,
            end,
            right,
            there,
            likely,
        )


def _order(example: Example, tried: Candidates) -> list[Move]:
    """The right graph as steps: along its links, else in the order of the text; only candidate intents are included."""
    place = {int(intent): at for at, intent in enumerate(tried.intents)}
    left = {place[intent] for intent in example.intents if intent in place}
    links = [(place[source], place[target]) for source, target in example.links if {source, target} <= place.keys()]
    feeding = {consumer: {source for source, target in links if target == consumer} for consumer in left}
    order: list[Move] = []
    while left:
        done = [added for added, _ in order]
        ready = [one for one in left if feeding[one] <= set(done)] or list(left)
        continued = [one for one in ready if done and done[-1] in feeding[one]]
        added = min(continued or ready, key=lambda one: (tried.position[one], one))
        fed_by = [one for one in feeding[added] if one in done]
        nearest = max(fed_by, key=lambda one: (one == done[-1], tried.position[one]), default=SENT)
        order.append((added, nearest))
        left.discard(added)
    return order


class _Fit:
    """Negative log-likelihood of all steps with L2 penalty, and its gradient."""

    def __init__(self, choices: Sequence[_Choice], intents: int) -> None:
        counts = np.array([len(choice.pairs) + 1 for choice in choices])
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._choice = np.repeat(np.arange(len(choices)), counts)
        self._steps = choices[0].features.shape[1]
        self._ends = len(choices[0].end)
        self._intents = intents
        nothing = np.zeros((1, self._steps))
        self._features = np.concatenate([np.vstack([one.features, nothing]) for one in choices]).astype(np.float32)
        self._end_rows = self._starts[1:] - 1
        self._continued = np.ones(len(self._choice), dtype=bool)
        self._continued[self._end_rows] = False
        self._pairs = np.concatenate([one.pairs for one in choices])
        self._cells = self._choice[self._continued] * intents + np.concatenate([one.consumers for one in choices])
        self._end_features = np.stack([one.end for one in choices])
        self._taken = np.stack([one.taken for one in choices])
        self._likely = np.stack([one.likely for one in choices])
        self._right = self._starts[:-1] + np.array([one.right for one in choices])

    def result(self) -> Numbers:
        sizes = self._sizes()
        best = minimize(self._loss, np.zeros(sum(sizes)), jac=True, method="L-BFGS-B", options={"maxiter": _ROUNDS}).x
        step, end, pairs, cooccurrence, alternatives = np.split(best.astype(np.float32), np.cumsum(sizes)[:-1])
        square = (self._intents, self._intents)
        return Numbers(
            step=step,
            end=end,
            pairs=pairs.reshape(-1, self._intents),
            cooccurrence=cooccurrence.reshape(square),
            alternatives=alternatives.reshape(square),
        )

    def _sizes(self) -> list[int]:
        intents = self._intents
        return [self._steps, self._ends, (intents + 1) * intents, intents * intents, intents * intents]

    def _loss(self, numbers: Array) -> tuple[float, Array]:
        sizes = self._sizes()
        step, end, pairs, cooccurrence, alternatives = np.split(numbers, np.cumsum(sizes)[:-1])
        square = (self._intents, self._intents)
        scores = (self._features @ step.astype(np.float32)).astype(np.float64)
        together = self._taken @ cooccurrence.reshape(square) + self._likely @ alternatives.reshape(square)
        scores[self._continued] += pairs[self._pairs] + together.ravel()[self._cells]
        scores[self._end_rows] += self._end_features @ end
        top = np.maximum.reduceat(scores, self._starts[:-1])
        weights = np.exp(scores - top[self._choice])
        sums = np.add.reduceat(weights, self._starts[:-1])
        slope = weights / sums[self._choice]
        slope[self._right] -= 1
        penalty = np.repeat(_PENALTIES, sizes)
        loss = float((np.log(sums) + top - scores[self._right]).sum() + (penalty * numbers**2).sum() / 2)
        return loss, self._slope(slope) + penalty * numbers

    def _slope(self, slope: Array) -> Array:
        moves = slope[self._continued]
        cells = np.bincount(self._cells, moves, minlength=len(self._taken) * self._intents).reshape(-1, self._intents)
        return np.concatenate(
            [
                self._features.T @ slope.astype(np.float32),
                self._end_features.T @ slope[self._end_rows],
                np.bincount(self._pairs, moves, minlength=(self._intents + 1) * self._intents),
                (self._taken.T @ cells).ravel(),
                (self._likely.T @ cells).ravel(),
            ]
        )
