"""The batches this process drives: claimed when nobody does, kept by its heartbeat, handed over when it stops."""

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
from services.orchestrator.journal.batches import CHANGED, KeptBatches
from services.orchestrator.notifier import Bells

log = structlog.get_logger(__name__)

MOST = 16
"""Batches driven here at once; others wait, or are driven elsewhere. A tenant's first waits for nobody's."""

MOST_HELD = 128
"""With those first ones, and those that wait for a task or model that nobody offers at the moment."""

MOST_OF_ONE = MOST_HELD // 2
"""Of these, a tenant's."""

Drive = Callable[[Claimed], Awaitable[None]]


class Tenure:
    """Has batches driven as long as they are this process's.

    Args:
        kept: which says whose a batch is.
        drive: takes a batch to its end.
        bells: rung for what is told of changes.
        lease_seconds: of a batch; a third of it passes between renewals.
        waiting: those of them that can begin no item at the moment.
    """

    def __init__(
        self, kept: KeptBatches, drive: Drive, bells: Bells, lease_seconds: float, waiting: Collection[str]
    ) -> None:
        self._kept = kept
        self._drive = drive
        self._bells = bells
        self._lease_seconds = lease_seconds
        self._waiting = waiting
        self._driving: dict[str, asyncio.Task[None]] = {}
        self._fences: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._faults = FaultCounter()

    async def __aenter__(self) -> Self:
        for loop, name in ((self._beat, "batch leases"), (self._take, "batch takeover")):
            self._watching.append(asyncio.create_task(supervise(loop, name=name), name=name))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hand_over()

    async def hand_over(self) -> None:
        """Stops driving and lets go of all batches, for others to take at once; their items go on."""
        watching, self._watching = self._watching, []
        if not watching:
            return
        await _ended([*watching, *self._driving.values()])
        try:
            await self._kept.release()
        except Unavailable as error:
            log.warning("batches are handed over late: the journal does not answer", error=error.message)

    def look(self) -> None:
        """Has batches taken that nobody drives."""
        self._bells.ring((CHANGED,))

    async def _take(self) -> None:
        """Takes batches that nobody drives, for as long as there is room."""
        with self._bells.listening(CHANGED) as bell:
            while True:
                bell.clear()
                free = MOST_HELD - len(self._driving)
                if free > 0 and (chosen := self._chosen(await self._kept.due(free, list(self._driving)))):
                    for claimed in await self._kept.claim(chosen):
                        self._start(claimed)
                try:
                    async with asyncio.timeout(self._lease_seconds / 3):
                        await bell.wait()
                except TimeoutError:
                    continue

    def _chosen(self, due: Iterable[tuple[str, str]]) -> list[str]:
        """What to claim, of batches with their tenants."""
        held = Counter(self._tenants.values())
        active = Counter(tenant for batch_id, tenant in self._tenants.items() if batch_id not in self._waiting)
        chosen = []
        for batch_id, tenant in sorted(due, key=lambda each: active[each[1]]):
            if held[tenant] < MOST_OF_ONE and (active.total() < MOST or not active[tenant]):
                held[tenant] += 1
                active[tenant] += 1
                chosen.append(batch_id)
        return chosen

    def _start(self, claimed: Claimed) -> None:
        batch_id = claimed.batch.id
        log.info("batch claimed", batch_id=batch_id, fence=claimed.fence)
        self._fences[batch_id], self._tenants[batch_id] = claimed.fence, claimed.batch.tenant
        self._driving[batch_id] = asyncio.create_task(self._driven(claimed), name=batch_id, context=Context())
        self._driving[batch_id].add_done_callback(partial(self._stopped, batch_id))

    async def _driven(self, claimed: Claimed) -> None:
        """Drives a batch; one that cannot be driven is ended once that has failed often enough."""
        batch_id = claimed.batch.id
        try:
            _check_readable(claimed)
            await self._drive(claimed)
        except* LeaseLost:
            log.warning("batch lost to another orchestrator", batch_id=batch_id)
        except* Unavailable as errors:
            log.warning("batch let go: something does not answer", batch_id=batch_id, error=str(errors.exceptions[0]))
        except* Exception as errors:
            if not self._faults.add(batch_id, errors):
                raise
            await self._fail(claimed, errors)
        else:
            self._faults.forget(batch_id)

    async def _fail(self, claimed: Claimed, error: Exception) -> None:
        """Ends a batch that cannot be continued; items under way run to their ends."""
        batch_id, failure = claimed.batch.id, failure_of("batch", error)
        log.error("batch ended: it cannot be continued", batch_id=batch_id, reason=failure.reason, exc_info=error)
        await self._kept.end(claimed, RUN_STATE_FAILED, failure)
        self._faults.forget(batch_id)

    def _stopped(self, batch_id: str, driving: "asyncio.Task[None]") -> None:
        del self._driving[batch_id], self._fences[batch_id], self._tenants[batch_id]
        self.look()
        if not driving.cancelled() and (error := driving.exception()):
            log.error("a batch was let go", batch_id=batch_id, exc_info=error)

    async def _beat(self) -> None:
        """Keeps this process's batches, and lets go of those it has lost or cannot keep."""
        renewed = time.monotonic()
        while True:
            begun = time.monotonic()
            try:
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._renew(dict(self._fences))
                renewed = begun
            except Exception as error:  # any: the leases that are not renewed run out meanwhile
                if not isinstance(error, Unavailable | TimeoutError):
                    log.exception("leases of batches cannot be renewed")
                if time.monotonic() - renewed > self._lease_seconds * 2 / 3:
                    await self._let_go(list(self._driving))
            await asyncio.sleep(self._lease_seconds / 3)

    async def _renew(self, held: dict[str, int]) -> None:
        if held:
            fences = await asyncio.shield(self._kept.renew(held))
            await self._let_go([batch_id for batch_id, fence in held.items() if fences.get(batch_id) != fence])

    async def _let_go(self, batch_ids: Collection[str]) -> None:
        for batch_id in batch_ids:
            if batch_id in self._driving:
                log.warning("batch let go", batch_id=batch_id)
                self._driving[batch_id].cancel()


def _check_readable(claimed: Claimed) -> None:
    """Refuses a batch that cannot be decoded.

    Raises:
        CorruptData: its caller, specification or pipeline cannot.
    """
    if not claimed.batch.is_readable:
        raise CorruptData(f"what is stored of batch {claimed.batch.id} cannot be decoded")


async def _ended(tasks: "Collection[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
