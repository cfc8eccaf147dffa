"""The candidate intents of a request, and the features of its graphs that do not change while they are built."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.planner.embedded.learned.evidence import Evidence
from services.planner.embedded.learned.weights import MEDIA, Weights
from services.planner.task_spec import Modality

Array = npt.NDArray[np.float32]

SENT = -1
"""Producer of what was sent with the request."""

UNLIKELY = 0.03
"""Probability below which an intent is no candidate, unless rules found it."""

FEWEST = 3
"""Fewest candidates: the most probable intents are always tried."""


@dataclass(frozen=True)
class Hints:
    """Features from the rules and from what was sent."""

    intents: frozenset[int] = frozenset()
    links: frozenset[tuple[int, int]] = frozenset()
    """(producer, consumer); SENT is the producer of what was sent."""
    refused: frozenset[int] = frozenset()
    """Intents that the request excludes."""
    certainty: float = 0.0
    """Confidence of the rules, 0 to 1."""
    left_open: bool = False
    """The rules could not plan a part of the request."""
    kinds: frozenset[Modality] = frozenset()
    """Of the files that were sent or that the request names."""
    repeated: bool = False
    """Rules found several tasks of one intent; a graph has each intent once."""
    own_files: bool = False
    """There are files, none of which has a placeholder's name."""
    placeholders: bool = False
    """There are files, one of which has a placeholder's name."""


@dataclass(frozen=True)
class Candidates:
    """The C candidate intents of one request, with the features that do not change while graphs are built."""

    intents: npt.NDArray[np.int64]
    """C: their indexes among all intents."""
    probability: Array
    """C: that the request calls for each."""
    position: Array
    """C: the token where the request calls for it."""
    suggested: Array
    """C: 1 if rules found it."""
    needs: npt.NDArray[np.bool_]
    """C x 4: the media that were sent and that it can take."""
    sent: npt.NDArray[np.bool_]
    """4: the MEDIA that were sent or that the request names."""
    certainty: float
    left_open: bool
    own_files: bool
    larger: Array
    """4: as in Evidence."""
    static: Array
    """(C + 1) x C x D: features of each producer, the last of which is what was sent, with each consumer."""
    pairs: Array
    """(C + 1) x C: as in Weights."""
    cooccurrence: Array
    """C x C: as in Weights."""
    alternatives: Array
    """C: the sum of Weights.alternatives over the probable intents."""


def probability(odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-odds)), dtype=np.float32)


def candidates(found: Evidence, hints: Hints, learned: Weights) -> Candidates:
    """Returns the candidates of a request."""
    likely = probability(found.called)
    tried = likely >= UNLIKELY
    tried[np.argsort(-likely)[:FEWEST]] = True
    tried[list(hints.refused)] = False
    tried[list(hints.intents)] = True
    intents = np.flatnonzero(tried)
    with_sent = np.append(intents, len(learned.intents))
    suggested = np.isin(intents, list(hints.intents)).astype(np.float32)
    sent = np.array([kind in hints.kinds for kind in MEDIA])
    needs = learned.needs[intents] > 0
    return Candidates(
        intents=intents,
        probability=likely[intents],
        position=found.position[intents],
        suggested=suggested,
        needs=needs & sent,
        sent=sent,
        certainty=hints.certainty,
        left_open=hints.left_open,
        own_files=hints.own_files,
        larger=found.larger,
        static=np.concatenate(
            [
                _of_words(found, intents, learned),
                _of_rules(hints, found, intents),
                _of_files(needs, hints),
                _of_own_files(found, intents, learned) * hints.own_files,
            ],
            axis=-1,
        ),
        pairs=learned.pairs[with_sent][:, intents],
        cooccurrence=learned.cooccurrence[intents][:, intents],
        alternatives=(likely @ learned.alternatives)[intents],
    )


def _of_words(found: Evidence, intents: npt.NDArray[np.int64], learned: Weights) -> Array:
    with_sent = np.append(intents, len(learned.intents))
    odds = np.clip(found.called[intents], -6, 4)
    likely = probability(found.called[intents])
    position, length = found.position[intents], found.length
    every, sent, made = _rows(len(intents))
    first, first_given_called = found.first[intents], found.first[intents] - found.called[intents]
    last_given_called = np.append(found.last[intents] - found.called[intents], 0)
    usual = learned.links[with_sent][:, intents]
    after = position[None] - np.append(position, 0)[:, None]
    between = np.minimum(_between(position, likely), 3)
    return np.stack(
        [
            odds * every,
            likely * every,
            (likely < 0.05) * every,  # noqa: PLR2004  # hardly called for
            (likely > 0.5) * every,  # noqa: PLR2004  # rather called for than not
            np.clip(first, -6, 4) * sent,
            np.clip(first, -6, 4) * made,
            sent,
            np.clip(first_given_called, -4, 4) * sent,
            np.clip(last_given_called, -4, 4)[:, None] * made,
            usual,
            usual * likely,
            1 - learned.fits[with_sent][:, intents],
            np.clip(after / length, -1, 1) * made,
            (after > 0) * made,
            np.clip(after / 10, -2, 2) * made,
            (np.abs(after) < 3) * made,  # noqa: PLR2004  # called for by the same words
            position / length * sent,
            between * made,
            between * sent,
            found.strength[intents] * every / 2,
            found.original[intents] * sent,
            found.original[intents] * made,
        ],
        axis=-1,
    ).astype(np.float32)


def _of_rules(hints: Hints, found: Evidence, intents: npt.NDArray[np.int64]) -> Array:
    place = {int(intent): i for i, intent in enumerate(intents)} | {SENT: len(intents)}
    every, sent, made = _rows(len(intents))
    linked = np.zeros_like(every)
    for producer, consumer in hints.links:
        linked[place[producer], place[consumer]] = 1
    suggested = np.isin(intents, list(hints.intents)).astype(np.float32)
    return np.stack(
        [
            suggested * every,
            linked,
            suggested * (1 - linked) * made,
            np.clip(found.called[intents], -6, 4) * suggested * every,
            linked * sent,
            suggested.sum() * every / 5,
            suggested * hints.certainty * every,
            (1 - suggested) * hints.certainty * every,
            (1 - suggested) * hints.left_open * every,
            linked * hints.certainty,
            suggested * hints.own_files * every,
            suggested * hints.own_files * hints.certainty * every,
            (1 - suggested) * hints.own_files * every,
            (1 - suggested) * hints.own_files * hints.certainty * every,
            linked * hints.own_files * every,
        ],
        axis=-1,
    ).astype(np.float32)


def _of_files(needs: npt.NDArray[np.bool_], hints: Hints) -> Array:
    _, sent, made = _rows(len(needs))
    there = np.array([kind in hints.kinds for kind in MEDIA])
    media, met = needs.any(axis=1), (needs & there).any(axis=1)
    text_is_elsewhere = there.any() and Modality.TEXT not in hints.kinds
    return np.stack(
        [met * sent, (media & ~met) * sent, ~media * text_is_elsewhere * sent, met * made],
        axis=-1,
    ).astype(np.float32)


def _of_own_files(found: Evidence, intents: npt.NDArray[np.int64], learned: Weights) -> Array:
    """Features that weigh differently if users send files of their own."""
    every, sent, made = _rows(len(intents))
    odds = np.clip(found.called[intents], -6, 4)
    usual = learned.links[np.append(intents, len(learned.intents))][:, intents]
    first = np.clip(found.first[intents] - found.called[intents], -4, 4)
    return np.stack(
        [odds * every, probability(found.called[intents]) * every, sent, usual * made, usual * sent, first * sent],
        axis=-1,
    ).astype(np.float32)


def _rows(size: int) -> tuple[Array, Array, Array]:
    """(C + 1) x C each: ones, those of what was sent, those of what was made."""
    every = np.ones((size + 1, size), dtype=np.float32)
    sent = np.zeros_like(every)
    sent[-1] = 1
    return every, sent, every - sent


def _between(position: Array, likely: Array) -> Array:
    """Expected number of other tasks between a producer (or the beginning) and a consumer."""
    start = np.append(position, -1)
    within = (position[None, None] > start[:, None, None]) & (position[None, None] < position[None, :, None])
    ahead = position[None] > start[:, None]
    return np.where(ahead, (within * likely).sum(axis=-1), 0)
