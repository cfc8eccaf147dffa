"""Features of moves: adding one task to a partial graph, or ending the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.planner.embedded.learned.candidates import SENT, Candidates
from services.planner.embedded.learned.weights import SIZES

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int64]

Move = tuple[int, int]
"""(added task, its producer), as indexes among the candidates; SENT is the producer of what was sent."""


@dataclass(frozen=True)
class PartialGraphs:
    """G unfinished graphs of N tasks each."""

    added: Indexes
    """G x N: the tasks in the order in which they were added."""
    feeders: Indexes
    """G x N: the producer of each."""
    producers: Indexes
    """G x (N + 1): the possible producers of the next task."""
    left: Array
    """G x C: 0 for the candidates that were added."""
    used: Flags
    """G x 4: the media that were sent and that a task takes."""

    @property
    def count(self) -> int:
        """Tasks in each graph."""
        return len(self.added[0])


def partial_graphs(tried: Candidates, graphs: Sequence[Sequence[Move]]) -> PartialGraphs:
    """Returns graphs of the same number of tasks as arrays."""
    moves = np.array(graphs, dtype=np.int64).reshape(len(graphs), -1, 2)
    added, feeders = moves[:, :, 0], moves[:, :, 1]
    producers = np.full((len(graphs), added.shape[1] + 1), SENT)
    producers[:, :-1] = added
    left = np.ones((len(graphs), len(tried.intents)), dtype=np.float32)
    np.put_along_axis(left, added, 0, axis=1)
    of_sent = (feeders == SENT)[:, :, None]
    return PartialGraphs(added, feeders, producers, left, (tried.needs[added] & of_sent).any(axis=1))


def move_features(tried: Candidates, partial: PartialGraphs) -> Array:
    """G x (N + 1) x C x 15 features of adding each candidate to each of the producers."""
    position, likely, count = tried.position, tried.probability * partial.left, partial.count
    there = position[partial.added]
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
    _of_made(result[:, :-1], partial, np.asarray((tried.sent & ~partial.used).any(axis=1)))
    _of_sent(result[:, -1], tried, partial, ahead)
    return result


def _of_made(rows: Array, partial: PartialGraphs, idle: Flags) -> None:
    """Fills in the features that distinguish one producing task from another.

    Args:
        rows: G x N x C x 15.
        partial: the graphs, in the order of the rows.
        idle: G: whether no task takes some of what was sent.
    """
    rows[:, -1:, :, 0] = 1
    rows[..., 1] = (partial.added[:, :, None] == partial.feeders[:, None]).any(axis=2)[:, :, None]
    rows[:, :-1, :, 7] = 1
    rows[..., 14] = idle[:, None, None]


def _of_sent(row: Array, tried: Candidates, partial: PartialGraphs, ahead: Flags) -> None:
    """Fills in the features of taking what was sent: G x C x 15."""
    used = partial.used[:, None]
    row[..., 2] = partial.count > 0
    row[..., 3] = partial.count > 1
    row[..., 8] = (partial.count > 0) * ahead
    row[..., 12] = (tried.needs & used).any(axis=2)
    row[..., 13] = (tried.needs & ~used).any(axis=2)


def end_features(tried: Candidates, partial: PartialGraphs) -> Array:
    """G x 26 features of ending the graphs."""
    likely, suggested, count = tried.probability * partial.left, tried.suggested * partial.left, partial.count
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
        (tried.sent & ~partial.used).sum(axis=1),
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
