"""Watchdog for batches and loads that take too long: native code cannot be cancelled, only detected or killed."""

import asyncio
import time

import structlog

from experts.host.models import Models
from services.common.server import RunningServer

log = structlog.get_logger(__name__)

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 5.0


async def watch(models: Models, running: RunningServer, *, batch_seconds: float, load_seconds: float) -> None:
    """Kills worker processes whose batch is overdue; without a worker process, sets liveness to NOT_SERVING.

    Args:
        models: the models of the expert.
        running: the server whose liveness is set.
        batch_seconds: maximum duration of a batch.
        load_seconds: maximum duration of a load.
    """
    alive, pause = True, min(max(batch_seconds / 10, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
    while True:
        await asyncio.sleep(pause)
        overdue = [batcher for batcher in models.batchers if _is_overdue(batcher.busy_since, batch_seconds)]
        stuck = [batcher.model_id for batcher in overdue if not batcher.kill(batch_seconds)]
        loading = [model.id for model in models.all if model.load_progress is not None]
        if _is_overdue(models.loading_since, load_seconds):
            stuck += loading
        if alive == (not stuck):
            continue
        alive = not stuck
        await running.set_ready("liveness", ready=alive)
        if stuck:
            log.error("not alive: models are stuck", models=stuck)
        else:
            log.info("alive again")


def _is_overdue(since: float | None, seconds: float) -> bool:
    return since is not None and time.monotonic() - since > seconds
