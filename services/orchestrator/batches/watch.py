"""Looks at batches that are watched: one in a while, whoever watches."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context

from protos.hugginggpt.v1.batch_pb2 import Batch
from services.orchestrator.leases import stopping

WATCH_SECONDS = 1.0
"""Between two looks at a batch that is watched."""


class Looks:
    """Shared by all who watch a batch of a tenant.

    Args:
        look: at a batch of a tenant, as it stands.
    """

    def __init__(self, look: Callable[[str, str], Awaitable[Batch]]) -> None:
        self._look = look
        self._coming: dict[tuple[str, str], asyncio.Task[Batch]] = {}
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Ends the waiting for looks, also for those to come."""
        self._closed.set()

    async def next(self, batch_id: str, tenant: str) -> Batch:
        """How a batch stands a moment from now, without its plan; not to be changed.

        Raises:
            ServiceError: of looking at it; Unavailable if this is closed.
        """
        key = batch_id, tenant
        if key not in self._coming:
            self._coming[key] = asyncio.create_task(self._later(*key), name=f"look-{batch_id}", context=Context())
            self._coming[key].add_done_callback(_heard)
        return await asyncio.shield(self._coming[key])

    async def _later(self, batch_id: str, tenant: str) -> Batch:
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await self._closed.wait()
        except TimeoutError:
            pass
        del self._coming[batch_id, tenant]  # who comes from now on waits for the look after this one
        if self._closed.is_set():
            raise stopping()
        return planless(await self._look(batch_id, tenant))


def planless(batch: Batch) -> Batch:
    """The same batch, rid of its plan."""
    for holder in ("pipeline", "spec"):
        if batch.HasField(holder):
            getattr(batch, holder).ClearField("plan")
    return batch


def _heard(looking: "asyncio.Task[Batch]") -> None:
    """Nobody may be left to hear what went wrong."""
    if not looking.cancelled():
        looking.exception()
