"""Watches what cannot be cancelled: a call in native code can at least be noticed."""

import asyncio
import time

import structlog

from experts.host.models import Models
from services.common.server import RunningServer

log = structlog.get_logger(__name__)

SHORTEST_LOOK, LONGEST_LOOK = 0.02, 5.0


async def watch(models: Models, running: RunningServer, *, batch_seconds: float, load_seconds: float) -> None:
    """Ends what takes longer than it may; where that is no process of its own, the expert is not alive.

    Args:
        models: of the expert.
        running: whose liveness it is.
        batch_seconds: how long a batch may take.
        load_seconds: how long a load may take.
    """
    alive, pause = True, min(max(batch_seconds / 10, SHORTEST_LOOK), LONGEST_LOOK)
    while True:
        await asyncio.sleep(pause)
        overdue = [queue for queue in models.queues if _is_overdue(queue.busy_since, batch_seconds)]
        stuck = [queue.model_id for queue in overdue if not queue.kill(batch_seconds)]
        loading = [model.id for model in models.all if model.loading is not None]
        if _is_overdue(models.loading_since, load_seconds):
            stuck += loading
        if alive == (not stuck):
            continue
        alive = not stuck
        await running.set_ready("liveness", ready=alive)
        if stuck:
            log.error("not alive: a model does not come back", models=stuck)
        else:
            log.info("alive again")


def _is_overdue(since: float | None, seconds: float) -> bool:
    return since is not None and time.monotonic() - since > seconds
