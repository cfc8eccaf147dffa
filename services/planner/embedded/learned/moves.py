"""The features of going on with a graph that is underway: what is added to what, and when it is complete."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.planner.embedded.learned.stages import SENT, Candidates
from services.planner.embedded.learned.weights import SIZES

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

Move = tuple[int, int]
"""(what is added, what feeds it), as places among the candidates; SENT feeds what works on what was sent."""


def moving(tried: Candidates, taken: Sequence[Move]) -> tuple[list[int], Array]:
    """What may feed the next task, and P x C x 15 features of adding each candidate to each, given what is taken."""
    added = [place for place, _ in taken]
    count, size = len(taken), len(tried.senses)
    left = _left(tried, taken)
    likely, position, used = tried.probability * left, tried.position, _used(tried, taken)
    ahead = position > (position[added].max() if added else -1)
    here = position[added[-1]] if added else -1
    skipped = ((position[None] > here) & (position[None] < position[:, None])) @ likely
    result = np.zeros((count + 1, size, 15), dtype=np.float32)
    result[:, :, 4] = ahead
    result[:, :, 5] = np.minimum(skipped, 3)
    result[:, :, 6] = position < here
    result[:, :, 9] = count / 4
    result[:, :, 10] = tried.larger[min(count, len(SIZES)) - 1] / 2 if count else 0
    result[:, :, 11] = likely.sum() - likely
    _of_made(result[:-1], added, taken, idle=bool((tried.sent & ~used).any()))
    _of_sent(result[-1], tried, count, ahead, used)
    return [*added, SENT], result


def _of_made(rows: Array, added: Sequence[int], taken: Sequence[Move], *, idle: bool) -> None:
    """Fills in, row by row, what tells between feeding by one task or another.

    Args:
        rows: count x C x 15.
        added: what is there, in the order of the rows.
        taken: how it came to be there.
        idle: nothing works yet on some of what was sent.
    """
    feeding = {producer for _, producer in taken}
    rows[-1:, :, 0] = 1
    rows[:, :, 1] = np.array([place in feeding for place in added], dtype=np.float32)[:, None]
    rows[:-1, :, 7] = 1
    rows[:, :, 14] = idle


def _of_sent(row: Array, tried: Candidates, count: int, ahead: Flags, used: Flags) -> None:
    """Fills in what tells for and against feeding by what was sent: C x 15."""
    row[:, 2] = count > 0
    row[:, 3] = count > 1
    row[:, 8] = (count > 0) * ahead
    row[:, 12] = (tried.needs & used).any(axis=1)
    row[:, 13] = (tried.needs & ~used).any(axis=1)


def _left(tried: Candidates, taken: Sequence[Move]) -> Array:
    """C: 0 for what is taken."""
    left = np.ones(len(tried.senses), dtype=np.float32)
    left[[place for place, _ in taken]] = 0
    return left


def _used(tried: Candidates, taken: Sequence[Move]) -> Flags:
    """4: the media that were sent and that something works on."""
    of_sent = [place for place, producer in taken if producer == SENT]
    return np.asarray(tried.needs[of_sent].any(axis=0))


def ending(tried: Candidates, taken: Sequence[Move]) -> Array:
    """26 features of ending here."""
    left = _left(tried, taken)
    likely, suggested, count = tried.probability * left, tried.suggested * left, len(taken)
    hinted = bool(suggested.any())
    ordered = np.sort(np.append(likely, [0, 0]))
    return np.array(
        [
            count > 0,
            ordered[-1],
            likely.sum(),
            ordered[-2],
            -tried.larger[min(count, len(SIZES)) - 1] / 2 if count else 0,
            tried.larger[min(count, len(SIZES)) - 2] / 2 if count > 1 else 0,
            count == 1,
            count / 4,
            count == 0,
            (likely > 0.4).sum(),  # noqa: PLR2004  # what should not be left out
            suggested.sum(),
            (suggested * likely).sum(),
            hinted,
            (tried.sent & ~_used(tried, taken)).sum(),
            not tried.sent.any(),
            (not hinted) * tried.certainty,
            tried.left_open,
            (count == 0) * (not tried.suggested.any()),
            hinted * tried.own_files,
            hinted * tried.own_files * tried.certainty,
            (not hinted) * tried.own_files * tried.certainty,
            tried.own_files,
            tried.own_files * likely.sum(),
            tried.own_files * ordered[-1],
            tried.own_files * (count == 1),
            tried.own_files * count / 4,
        ],
        dtype=np.float32,
    )
