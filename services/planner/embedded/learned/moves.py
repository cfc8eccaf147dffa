"""The features of going on with graphs that are underway: what is added to what, and when they are complete."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.planner.embedded.learned.stages import SENT, Candidates
from services.planner.embedded.learned.weights import SIZES

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

Move = tuple[int, int]
"""(what is added, what feeds it), as places among the candidates; SENT feeds what works on what was sent."""


@dataclass(frozen=True)
class Underway:
    """G graphs of N tasks each."""

    added: Places
    """G x N: what is there, in the order in which it came."""
    feeders: Places
    """G x N: what feeds each."""
    producers: Places
    """G x (N + 1): what may feed the next task."""
    left: Array
    """G x C: 0 for what is taken."""
    used: Flags
    """G x 4: the media that were sent and that something works on."""

    @property
    def count(self) -> int:
        """Tasks in each graph."""
        return len(self.added[0])


def underway(tried: Candidates, graphs: Sequence[Sequence[Move]]) -> Underway:
    """Graphs of the same number of tasks, side by side."""
    moves = np.array(graphs, dtype=np.int64).reshape(len(graphs), -1, 2)
    added, feeders = moves[:, :, 0], moves[:, :, 1]
    producers = np.full((len(graphs), added.shape[1] + 1), SENT)
    producers[:, :-1] = added
    left = np.ones((len(graphs), len(tried.intents)), dtype=np.float32)
    np.put_along_axis(left, added, 0, axis=1)
    of_sent = (feeders == SENT)[:, :, None]
    return Underway(added, feeders, producers, left, (tried.needs[added] & of_sent).any(axis=1))


def moving(tried: Candidates, so_far: Underway) -> Array:
    """G x (N + 1) x C x 15 features of adding each candidate to each of the producers."""
    position, likely, count = tried.position, tried.probability * so_far.left, so_far.count
    there = position[so_far.added]
    ahead = position > there.max(axis=1, initial=-1)[:, None]
    here = there[:, -1:] if count else np.array([[-1]])
    skipped = (likely * (position > here)) @ (position[:, None] < position)
    result = np.zeros((len(there), count + 1, len(position), 15), dtype=np.float32)
    result[..., 4] = ahead[:, None]
    result[..., 5] = np.minimum(skipped, 3)[:, None]
    result[..., 6] = (position < here)[:, None]
    result[..., 9] = count / 4
    result[..., 10] = tried.larger[min(count, len(SIZES)) - 1] / 2 if count else 0
    result[..., 11] = (likely.sum(axis=1, keepdims=True) - likely)[:, None]
    _of_made(result[:, :-1], so_far, np.asarray((tried.sent & ~so_far.used).any(axis=1)))
    _of_sent(result[:, -1], tried, so_far, ahead)
    return result


def _of_made(rows: Array, so_far: Underway, idle: Flags) -> None:
    """Fills in, row by row, what tells between feeding by one task or another.

    Args:
        rows: G x N x C x 15.
        so_far: what is there, in the order of the rows.
        idle: G: nothing works yet on some of what was sent.
    """
    rows[:, -1:, :, 0] = 1
    rows[..., 1] = (so_far.added[:, :, None] == so_far.feeders[:, None]).any(axis=2)[:, :, None]
    rows[:, :-1, :, 7] = 1
    rows[..., 14] = idle[:, None, None]


def _of_sent(row: Array, tried: Candidates, so_far: Underway, ahead: Flags) -> None:
    """Fills in what tells for and against feeding by what was sent: G x C x 15."""
    used = so_far.used[:, None]
    row[..., 2] = so_far.count > 0
    row[..., 3] = so_far.count > 1
    row[..., 8] = (so_far.count > 0) * ahead
    row[..., 12] = (tried.needs & used).any(axis=2)
    row[..., 13] = (tried.needs & ~used).any(axis=2)


def ending(tried: Candidates, so_far: Underway) -> Array:
    """G x 26 features of ending here."""
    likely, suggested, count = tried.probability * so_far.left, tried.suggested * so_far.left, so_far.count
    hinted = suggested.any(axis=1)
    ordered = np.sort(np.hstack((likely, np.zeros((len(likely), 2), dtype=np.float32))), axis=1)
    features = (
        count > 0,
        ordered[:, -1],
        likely.sum(axis=1),
        ordered[:, -2],
        -tried.larger[min(count, len(SIZES)) - 1] / 2 if count else 0,
        tried.larger[min(count, len(SIZES)) - 2] / 2 if count > 1 else 0,
        count == 1,
        count / 4,
        count == 0,
        (likely > 0.4).sum(axis=1),  # noqa: PLR2004  # what should not be left out
        suggested.sum(axis=1),
        (suggested * likely).sum(axis=1),
        hinted,
        (tried.sent & ~so_far.used).sum(axis=1),
        not tried.sent.any(),
        ~hinted * tried.certainty,
        tried.left_open,
        (count == 0) * (not tried.suggested.any()),
        hinted * tried.own_files,
        hinted * tried.own_files * tried.certainty,
        ~hinted * tried.own_files * tried.certainty,
        tried.own_files,
        tried.own_files * likely.sum(axis=1),
        tried.own_files * ordered[:, -1],
        tried.own_files * (count == 1),
        tried.own_files * count / 4,
    )
    result = np.empty((len(likely), len(features)), dtype=np.float32)
    for column, feature in enumerate(features):
        result[:, column] = feature
    return result
