"""Leases of batches: claims batches without an owner, renews their leases, and releases them when the process stops."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import Context
from functools import partial
from typing import Self

import structlog

from protos.hugginggpt.v1.run_pb2 import RUN_STATE_FAILED
from services.common.errors import CorruptData, Unavailable
from services.common.supervision import supervise
from services.orchestrator.faults import FaultCounter, failure_of
from services.orchestrator.journal import LeaseLost
from services.orchestrator.journal.batch_rows import Claimed
from services.orchestrator.journal.batches import CHANGED, BatchStore
from services.orchestrator.notifier import RunNotifier

log = structlog.get_logger(__name__)

MAX_ACTIVE = 16
"""Batches that start items here at once; others wait, or run elsewhere. The first batch of a tenant never waits."""

MAX_CLAIMED = 128
"""Claimed batches, including first ones of tenants and those that wait for a task or model that is not offered."""

MAX_CLAIMED_PER_TENANT = MAX_CLAIMED // 2
"""Claimed batches of one tenant."""

Execute = Callable[[Claimed], Awaitable[None]]


class BatchLeaseManager:
    """Executes the batches whose leases this process holds.

    Args:
        store: of batches and their leases.
        execute: executes a batch to its end.
        notifier: notifies of changes in the journal.
        lease_seconds: length of a lease; leases are renewed after a third of it.
        waiting: IDs of batches that cannot start items at the moment.
    """

    def __init__(
        self, store: BatchStore, execute: Execute, notifier: RunNotifier, lease_seconds: float, waiting: Collection[str]
    ) -> None:
        self._store = store
        self._execute = execute
        self._notifier = notifier
        self._lease_seconds = lease_seconds
        self._waiting = waiting
        self._executing: dict[str, asyncio.Task[None]] = {}
        self._fences: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._faults = FaultCounter()

    async def __aenter__(self) -> Self:
        for loop, name in ((self._renew_periodically, "batch leases"), (self._claim_periodically, "batch takeover")):
            self._loops.append(asyncio.create_task(supervise(loop, name=name), name=name))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release_all()

    async def release_all(self) -> None:
        """Stops and releases all batches, for others to claim at once; items' runs are released with the other runs."""
        loops, self._loops = self._loops, []
        if not loops:
            return
        await _cancel([*loops, *self._executing.values()])
        try:
            await self._store.release()
        except Unavailable as error:
            log.warning("leases of batches not released: journal unavailable", error=error.message)

    def claim_now(self) -> None:
        """Claims batches without an owner immediately."""
        self._notifier.notify((CHANGED,))

    async def _claim_periodically(self) -> None:
        """Claims batches without an owner, up to the limits."""
        with self._notifier.subscribed(CHANGED) as changed:
            while True:
                changed.clear()
                free = MAX_CLAIMED - len(self._executing)
                if free > 0 and (chosen := self._choose(await self._store.due(free, list(self._executing)))):
                    for claimed in await self._store.claim(chosen):
                        self._start(claimed)
                try:
                    async with asyncio.timeout(self._lease_seconds / 3):
                        await changed.wait()
                except TimeoutError:
                    continue

    def _choose(self, due: Iterable[tuple[str, str]]) -> list[str]:
        """The batches to claim, of batches with their tenants."""
        claimed = Counter(self._tenants.values())
        active = Counter(tenant for batch_id, tenant in self._tenants.items() if batch_id not in self._waiting)
        chosen = []
        for batch_id, tenant in sorted(due, key=lambda each: active[each[1]]):
            if claimed[tenant] < MAX_CLAIMED_PER_TENANT and (active.total() < MAX_ACTIVE or not active[tenant]):
                claimed[tenant] += 1
                active[tenant] += 1
                chosen.append(batch_id)
        return chosen

    def _start(self, claimed: Claimed) -> None:
        batch_id = claimed.batch.id
        log.info("batch claimed", batch_id=batch_id, fence=claimed.fence)
        self._fences[batch_id], self._tenants[batch_id] = claimed.fence, claimed.batch.tenant
        self._executing[batch_id] = asyncio.create_task(self._run(claimed), name=batch_id, context=Context())
        self._executing[batch_id].add_done_callback(partial(self._stopped, batch_id))

    async def _run(self, claimed: Claimed) -> None:
        """Executes a batch; ends it as FAILED if that has failed repeatedly."""
        batch_id = claimed.batch.id
        try:
            _check_readable(claimed)
            await self._execute(claimed)
        except* LeaseLost:
            log.warning("batch lease lost", batch_id=batch_id)
        except* Unavailable as errors:
            log.warning("batch released: dependency unavailable", batch_id=batch_id, error=str(errors.exceptions[0]))
        except* Exception as errors:
            if not self._faults.add(batch_id, errors):
                raise
            await self._fail(claimed, errors)
        else:
            self._faults.forget(batch_id)

    async def _fail(self, claimed: Claimed, error: Exception) -> None:
        """Ends a batch that cannot be continued; active items run to their ends."""
        batch_id, failure = claimed.batch.id, failure_of("batch", error)
        log.error("batch ended: it cannot be continued", batch_id=batch_id, reason=failure.reason, exc_info=error)
        await self._store.end(claimed, RUN_STATE_FAILED, failure)
        self._faults.forget(batch_id)

    def _stopped(self, batch_id: str, executing: "asyncio.Task[None]") -> None:
        del self._executing[batch_id], self._fences[batch_id], self._tenants[batch_id]
        self.claim_now()
        if not executing.cancelled() and (error := executing.exception()):
            log.error("batch released after an internal error", batch_id=batch_id, exc_info=error)

    async def _renew_periodically(self) -> None:
        """Renews the leases of this process; stops batches whose leases are lost or cannot be renewed."""
        renewed = time.monotonic()
        while True:
            started = time.monotonic()
            try:
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._renew(dict(self._fences))
                renewed = started
            except Exception as error:  # any: otherwise the leases would expire
                if not isinstance(error, Unavailable | TimeoutError):
                    log.exception("leases of batches not renewed: internal error")
                if time.monotonic() - renewed > self._lease_seconds * 2 / 3:
                    await self._release(list(self._executing))
            await asyncio.sleep(self._lease_seconds / 3)

    async def _renew(self, held: dict[str, int]) -> None:
        if held:
            fences = await asyncio.shield(self._store.renew(held))
            await self._release([batch_id for batch_id, fence in held.items() if fences.get(batch_id) != fence])

    async def _release(self, batch_ids: Collection[str]) -> None:
        for batch_id in batch_ids:
            if batch_id in self._executing:
                log.warning("batch released", batch_id=batch_id)
                self._executing[batch_id].cancel()


def _check_readable(claimed: Claimed) -> None:
    """Checks that a claimed batch was decoded.

    Raises:
        CorruptData: its caller, spec or pipeline cannot be decoded.
    """
    if not claimed.batch.is_readable:
        raise CorruptData(f"the stored data of batch {claimed.batch.id} cannot be decoded")


async def _cancel(tasks: "Collection[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
