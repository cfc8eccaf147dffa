"""Training of all weights: linear scores, then steps with the scores of held-out requests."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import KFold

from services.planner.embedded.intents import task_of
from services.planner.embedded.learned.evidence import Evidence, evidence
from services.planner.embedded.learned.weights import MEDIA, Weights
from services.planner.task_spec import standard_specs
from tests.eval.training import graphs, linear
from tests.eval.training.examples import Example

FOLDS = 5


def learned(given: Sequence[Example], intents: Sequence[str], *, jobs: int = 1) -> Weights:
    """Trains weights; deterministic for equal examples in equal order.

    Args:
        given: the training examples.
        intents: names of the intents; examples refer to them by index.
        jobs: number of processes.
    """
    parts = list(KFold(FOLDS, shuffle=True, random_state=1).split(given))
    held_out = Parallel(jobs)(
        delayed(_scored)([given[i] for i in seen], [given[i] for i in unseen], intents) for seen, unseen in parts
    )
    spoken_for: list[Evidence | None] = [None] * len(given)
    for (_, unseen), scores in zip(parts, held_out, strict=True):
        for i, one in zip(unseen, scores, strict=True):
            spoken_for[i] = one
    whole = replace(_linear(given, intents), links=graphs.usual_links(given, _fits(intents)))
    numbers = graphs.fitted(given, [one for one in spoken_for if one], whole)
    return replace(
        whole,
        step=numbers.step,
        end=numbers.end,
        pairs=numbers.pairs,
        cooccurrence=numbers.cooccurrence,
        alternatives=numbers.alternatives,
    )


def _scored(seen: Sequence[Example], unseen: Sequence[Example], intents: Sequence[str]) -> list[Evidence]:
    weights = _linear(seen, intents)
    return [evidence(example.tokens, weights) for example in unseen]


def _linear(given: Sequence[Example], intents: Sequence[str]) -> Weights:
    known = linear.vocabulary(given)
    numbers, bias = linear.fitted(known.matrix(given), linear.targets(given, len(intents)))
    square = np.zeros((len(intents), len(intents)), dtype=np.float32)
    taller = np.zeros((len(intents) + 1, len(intents)), dtype=np.float32)
    return Weights(
        intents=tuple(intents),
        features=known.features,
        families=known.families,
        rarity=known.rarity,
        linear=numbers,
        bias=bias,
        fits=_fits(intents).astype(np.float32),
        needs=_needs(intents).astype(np.float32),
        links=taller,
        step=np.zeros(0, dtype=np.float32),
        end=np.zeros(0, dtype=np.float32),
        pairs=taller,
        cooccurrence=square,
        alternatives=square,
    )


def _fits(intents: Sequence[str]) -> np.ndarray:
    """Matrix of producers and consumers with matching modalities; the last row is the request's inputs."""
    specs = standard_specs()
    fits = np.ones((len(intents) + 1, len(intents)))
    for i, producer in enumerate(intents):
        given = {port.modality for port in specs[task_of(producer)].outputs}
        for j, consumer in enumerate(intents):
            taken = {port.modality for port in specs[task_of(consumer, picture=True)].inputs}
            fits[i, j] = bool(given & taken)
    return fits


def _needs(intents: Sequence[str]) -> np.ndarray:
    """Matrix of intents and the media that they require."""
    specs = standard_specs()
    needs = np.zeros((len(intents), len(MEDIA)))
    for row, name in enumerate(intents):
        for task in {task_of(name), task_of(name, picture=True)}:
            taken = {port.modality for port in specs[task].inputs if port.required}
            needs[row] = np.maximum(needs[row], [kind in taken for kind in MEDIA])
    return needs
