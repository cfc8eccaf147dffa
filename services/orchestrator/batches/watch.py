"""Polls watched batches, once per interval for all watchers of a batch."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context

from protos.hugginggpt.v1.batch_pb2 import Batch
from services.orchestrator.leases import stopping_error

WATCH_SECONDS = 1.0
"""Interval of reads of a watched batch."""


class BatchPoller:
    """Reads shared by all watchers of a batch.

    Args:
        read: reads the state of a batch, by its ID and tenant.
    """

    def __init__(self, read: Callable[[str, str], Awaitable[Batch]]) -> None:
        self._read = read
        self._pending: dict[tuple[str, str], asyncio.Task[Batch]] = {}
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Fails all pending and later reads."""
        self._closed.set()

    async def next(self, batch_id: str, tenant: str) -> Batch:
        """The state of a batch at the next read, without its plan; callers must not change it.

        Raises:
            ServiceError: of the read; Unavailable after close().
        """
        key = batch_id, tenant
        if key not in self._pending:
            self._pending[key] = asyncio.create_task(self._read_later(*key), name=f"read-{batch_id}", context=Context())
            self._pending[key].add_done_callback(_ignore_error)
        return await asyncio.shield(self._pending[key])

    async def _read_later(self, batch_id: str, tenant: str) -> Batch:
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await self._closed.wait()
        except TimeoutError:
            pass
        del self._pending[batch_id, tenant]  # later watchers wait for the read after this one
        if self._closed.is_set():
            raise stopping_error()
        return without_plan(await self._read(batch_id, tenant))


def without_plan(batch: Batch) -> Batch:
    """Removes the plan from a batch; returns the batch."""
    for field in ("pipeline", "spec"):
        if batch.HasField(field):
            getattr(batch, field).ClearField("plan")
    return batch


def _ignore_error(reading: "asyncio.Task[Batch]") -> None:
    """Marks the error as retrieved, for a read without watchers."""
    if not reading.cancelled():
        reading.exception()
