"""Lease manager of runs and batches, with leases in memory."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from protos.hugginggpt.v1.failure_pb2 import Failure
from services.common.errors import CorruptData, ServiceError, Unavailable
from services.orchestrator.journal.leases import Lease
from services.orchestrator.leases import TAKEOVER_ATTEMPTS, LeaseManager

LEASE_SECONDS = 0.3
LONG_LEASE_SECONDS = 1000.0
"""For tests in which no lease may expire, however slow the machine is."""


@dataclass(frozen=True, eq=False)
class Held:
    id: str
    fence: int = 1


class MemoryLeases:
    """Leases that tests offer and take away."""

    kind = "run"

    def __init__(self) -> None:
        self.offered: list[Held] = []
        self.taken: set[str] = set()
        """IDs whose leases another process has."""
        self.load_error: ServiceError | None = None
        self.renew_error: ServiceError | None = None
        self.renewals: asyncio.Queue[list[str]] = asyncio.Queue()
        self.loads: asyncio.Queue[str] = asyncio.Queue()
        self.failures: dict[str, Failure] = {}
        self.has_failed = asyncio.Event()
        self.released_ids: list[str] = []
        self.is_released = False
        self.changed = asyncio.Event()

    async def claim(self, active: Mapping[str, Held]) -> Sequence[Held]:
        claimed, self.offered = self.offered, []
        return claimed

    async def load(self, claimed: Held) -> Held:
        self.loads.put_nowait(claimed.id)
        if self.load_error:
            raise self.load_error
        return claimed

    async def renew(self, active: Collection[str]) -> Mapping[str, int]:
        self.renewals.put_nowait(list(active))
        if self.renew_error:
            raise self.renew_error
        return {id_: 2 if id_ in self.taken else 1 for id_ in active}

    async def release(self) -> None:
        self.is_released = True

    async def fail(self, lease: Lease, failure: Failure) -> None:
        self.failures[lease.id] = failure
        self.has_failed.set()

    async def changes(self, active: Mapping[str, Held]) -> AsyncIterator[None]:
        while True:
            await self.changed.wait()
            self.changed.clear()
            yield

    def released(self, held: Held) -> None:
        self.released_ids.append(held.id)

    def use_trace(self, held: Held) -> AbstractContextManager[None]:
        return nullcontext()


class HangingExecutor:
    """Executes until it is cancelled; signals starts and cancellations."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def execute(self, held: Held) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


class FailingExecutor:
    """Fails every execution with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.executions = 0

    async def execute(self, held: Held) -> None:
        self.executions += 1
        raise self.error


async def test_lease_offered_at_the_start_is_executed() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    leases.offered = [Held("run_1")]
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LONG_LEASE_SECONDS) as manager:
        await executor.started.wait()
        assert list(manager.active) == ["run_1"]


async def test_lease_offered_later_is_claimed_on_a_change() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LONG_LEASE_SECONDS):
        await leases.renewals.get()  # the manager is running
        leases.offered = [Held("run_1")]
        leases.changed.set()
        await executor.started.wait()


async def test_lease_offered_later_is_claimed_after_a_third_of_a_lease() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LEASE_SECONDS):
        await leases.renewals.get()
        leases.offered = [Held("run_1")]
        await executor.started.wait()


async def test_active_leases_are_renewed() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LEASE_SECONDS) as manager:
        manager.start(Held("run_1"))
        while await leases.renewals.get() != ["run_1"]:
            pass


async def test_execution_stops_when_its_lease_is_lost() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LEASE_SECONDS) as manager:
        held = Held("run_1")
        manager.start(held)
        await executor.started.wait()
        leases.taken = {"run_1"}
        await executor.cancelled.wait()
        await manager.wait_released(held)
        assert not manager.active


async def test_execution_stops_when_its_lease_cannot_be_renewed() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LEASE_SECONDS) as manager:
        manager.start(Held("run_1"))
        await executor.started.wait()
        leases.renew_error = Unavailable("the journal is gone")
        await executor.cancelled.wait()


async def test_all_leases_are_released_when_the_manager_closes() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LONG_LEASE_SECONDS) as manager:
        manager.start(Held("run_1"))
        await executor.started.wait()
    assert executor.cancelled.is_set()
    assert leases.released_ids == ["run_1"]
    assert leases.is_released


async def test_nothing_starts_after_the_manager_closed() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    released: list[Held] = []
    held = Held("run_1")
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LONG_LEASE_SECONDS) as manager:
        manager.close()
        manager.start(held, released.append)
    assert released == [held]
    assert not executor.started.is_set()


async def test_lease_that_cannot_be_loaded_fails_after_the_last_attempt() -> None:
    leases, executor = MemoryLeases(), HangingExecutor()
    leases.load_error = CorruptData("not an event")
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LONG_LEASE_SECONDS) as manager:
        for _ in range(TAKEOVER_ATTEMPTS):
            assert not leases.failures
            leases.offered = [Held("run_1")]
            manager.claim_now()
            await leases.loads.get()
        await leases.has_failed.wait()
    assert leases.failures["run_1"].reason == "CORRUPT"
    assert not executor.started.is_set()


async def test_execution_that_fails_repeatedly_ends_with_a_failure() -> None:
    leases, executor = MemoryLeases(), FailingExecutor(ZeroDivisionError("a bug"))
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LONG_LEASE_SECONDS) as manager:
        for _ in range(TAKEOVER_ATTEMPTS):
            assert not leases.failures
            held = Held("run_1")
            manager.start(held)
            await manager.wait_released(held)
    assert leases.failures["run_1"].reason == "INTERNAL"


async def test_execution_without_journal_is_not_counted_as_failed_takeover() -> None:
    leases, executor = MemoryLeases(), FailingExecutor(Unavailable("the journal is gone"))
    async with asyncio.timeout(10), LeaseManager(leases, executor, {}, lease_seconds=LONG_LEASE_SECONDS) as manager:
        for _ in range(TAKEOVER_ATTEMPTS + 1):
            held = Held("run_1")
            manager.start(held)
            await manager.wait_released(held)
    assert executor.executions == TAKEOVER_ATTEMPTS + 1
    assert not leases.failures
