"""Watches the devices: a call in native code cannot be cancelled, but it can be noticed."""

import asyncio
import time
from collections.abc import Iterable

import structlog

from experts.host.batching import Queue
from services.runtime.server import Serving

log = structlog.get_logger(__name__)

SHORTEST_LOOK, LONGEST_LOOK = 0.02, 5.0


async def watch(queues: Iterable[Queue], running: Serving, *, seconds: float) -> None:
    """Ends what is longer at one batch than it may be; where that is no process of its own, the expert is not alive.

    Args:
        queues: of all models.
        running: whose liveness it is.
        seconds: how long a batch may take.
    """
    followed, alive = list(queues), True
    while True:
        await asyncio.sleep(min(max(seconds / 10, SHORTEST_LOOK), LONGEST_LOOK))
        overdue = [queue for queue in followed if _is_overdue(queue, seconds)]
        stuck = [queue for queue in overdue if not queue.kill(seconds)]
        if alive == (not stuck):
            continue
        alive = not stuck
        await running.set_ready("liveness", ready=alive)
        if stuck:
            log.error(
                "not alive: a model does not come back", models=[queue.model_id for queue in stuck], limit=seconds
            )
        else:
            log.info("alive again")


def _is_overdue(queue: Queue, seconds: float) -> bool:
    since = queue.busy_since
    return since is not None and time.monotonic() - since > seconds
