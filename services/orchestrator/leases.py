"""Leases of runs and batches: claims those without an owner, renews, executes and releases them."""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from functools import partial
from typing import Generic, Protocol, Self, TypeVar

import structlog
from google.rpc import code_pb2

from protos.hugginggpt.v1.failure_pb2 import Failure
from services.common.errors import CorruptData, FailedPrecondition, Unavailable
from services.common.supervision import supervise
from services.orchestrator.journal.leases import Lease

log = structlog.get_logger(__name__)

RENEWAL_PAUSE_SECONDS = 0.5
"""Longest pause before a failed renewal is repeated."""


ClaimT = TypeVar("ClaimT", bound=Lease)
"""A claimed lease."""
HeldT = TypeVar("HeldT", bound=Lease)
"""A lease with the data to execute its run or batch; equal only to itself."""
HeldT_contra = TypeVar("HeldT_contra", bound=Lease, contravariant=True)

TAKEOVER_ATTEMPTS = 3
"""Failed takeovers after which a run or batch ends as FAILED; another release of this program may succeed before."""

MAX_COUNTED = 10_000
"""Runs and batches counted at a time; the oldest counts are dropped first."""


class LeaseSource(Protocol[ClaimT, HeldT]):
    """Where the lease manager gets its leases from: those of runs, or of batches."""

    kind: str
    """"run" or "batch"."""

    async def claim(self, active: Mapping[str, HeldT]) -> Sequence[ClaimT]:
        """Claims leases without an owner, as many as this process may hold in addition to the active ones."""

    async def load(self, claimed: ClaimT) -> HeldT:
        """Loads the data of a claimed lease.

        Raises:
            CorruptData: the stored data cannot be read.
            Unavailable: the journal is unavailable.
        """

    def renew(self, active: Collection[str]) -> Awaitable[Mapping[str, int]]:
        """Renews leases by ID; returns the fencing tokens of those that this process still has."""

    async def release(self) -> None:
        """Releases all leases of this process, for others to claim at once."""

    async def fail(self, lease: Lease, failure: Failure) -> None:
        """Ends a run or batch that cannot be continued."""

    def changes(self, active: Mapping[str, HeldT]) -> AsyncIterator[None]:
        """Yields whenever there may be leases to claim; applies commands to active ones."""

    def released(self, held: HeldT) -> None:
        """Called when this process no longer executes a run or batch."""

    def use_trace(self, held: HeldT) -> AbstractContextManager[None]:
        """Makes the trace of a run or batch the current one within the block."""


class Executor(Protocol[HeldT_contra]):
    """Executes runs, or batches."""

    async def execute(self, held: HeldT_contra) -> None:
        """Executes a run or batch to its end; if cancelled, leaves it for another owner."""


def owner_name() -> str:
    """A name for this process that is unique among all orchestrators."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def stopping_error() -> Unavailable:
    """The error for callers of a process that is stopping."""
    return Unavailable("this orchestrator is stopping", remedy="retry: another orchestrator serves the request")


class LeaseManager(Generic[ClaimT, HeldT]):
    """Executes the runs, or the batches, whose leases this process holds.

    Args:
        source: claims, renews and releases the leases in the journal.
        executor: executes a run or batch to its end.
        active: empty; the manager stores in it what this process executes, by ID.
        lease_seconds: length of a lease; leases are renewed after a third of it.
    """

    def __init__(
        self,
        source: LeaseSource[ClaimT, HeldT],
        executor: Executor[HeldT],
        active: dict[str, HeldT],
        *,
        lease_seconds: float,
    ) -> None:
        self.active: Mapping[str, HeldT] = active
        """What this process executes, by ID."""
        self.is_closed = False
        """Whether this process stops, and executes nothing more."""
        self._active = active
        self._source = source
        self._executor = executor
        self._lease_seconds = lease_seconds
        self._executing: dict[HeldT, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._claim_due = asyncio.Event()
        self._failed_takeovers = FailedTakeovers()

    async def __aenter__(self) -> Self:
        for loop, what in (
            (self._renew_periodically, "leases"),
            (self._follow_changes, "changes"),
            (self._claim_periodically, "takeover"),
        ):
            name = f"{self._source.kind} {what}"
            # An empty context: what is claimed does not belong to the request that opens the manager.
            self._loops.append(asyncio.create_task(supervise(loop, name=name), name=name, context=Context()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release_all()

    def close(self) -> None:
        """Starts nothing more; what is active continues until release_all()."""
        self.is_closed = True

    def start(self, held: HeldT, on_release: Callable[[HeldT], None] | None = None) -> None:
        """Starts to execute a run or batch, unless this process stops: then another process claims it.

        Args:
            held: whose lease this process holds.
            on_release: called when this process no longer executes it.
        """
        if self.is_closed:
            if on_release:
                on_release(held)
            return
        self._active[held.id] = held
        self._executing[held] = task = asyncio.create_task(self._execute(held), name=held.id)
        task.add_done_callback(partial(self._released, held, on_release))

    async def wait_released(self, held: HeldT) -> None:
        """Waits until this process no longer executes a run or batch."""
        if held in self._executing:
            await asyncio.wait([self._executing[held]])

    def claim_now(self) -> None:
        """Claims leases without an owner immediately."""
        self._claim_due.set()

    async def release_all(self) -> None:
        """Stops executing and releases all leases, for other processes to claim at once."""
        self.close()
        if not self._loops:
            return
        loops, self._loops = self._loops, []
        await _cancel([*loops, *self._executing.values()])
        try:
            await self._source.release()
        except Unavailable as error:
            log.warning("leases not released: journal unavailable", kind=self._source.kind, error=error.message)

    async def _execute(self, held: HeldT) -> None:
        """Executes a run or batch; ends it as FAILED if that has failed repeatedly."""
        try:
            await self._executor.execute(held)
        except Exception as error:
            if not self._failed_takeovers.add(held.id, error):
                raise
            with self._source.use_trace(held):
                await self._fail(held, error)
        else:
            self._failed_takeovers.forget(held.id)

    def _released(
        self, held: HeldT, on_release: Callable[[HeldT], None] | None, executing: "asyncio.Task[None]"
    ) -> None:
        del self._executing[held]
        if self._active.get(held.id) is held:
            del self._active[held.id]
        self._source.released(held)
        if on_release:
            on_release(held)
        if not executing.cancelled() and (error := executing.exception()):
            with self._source.use_trace(held):
                log.error("released after an internal error", **self._ids(held), exc_info=error)

    async def _renew_periodically(self) -> None:
        """Renews the leases of this process; stops runs or batches that lost theirs or cannot renew it."""
        kind, renewed = self._source.kind, time.monotonic()
        while True:
            try:
                started = time.monotonic()
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._renew()
                renewed = started
            except Exception as error:  # any: otherwise the leases would expire
                if isinstance(error, Unavailable | TimeoutError):
                    log.warning("leases not renewed: journal unavailable", kind=kind, error=str(error) or "timeout")
                else:
                    log.exception("leases not renewed: internal error", kind=kind)
                if self._active and time.monotonic() - renewed > self._lease_seconds * 2 / 3:
                    log.warning("released: leases not renewed", kind=kind, count=len(self._active))
                    await _cancel(list(self._executing.values()))
                await asyncio.sleep(min(RENEWAL_PAUSE_SECONDS, self._lease_seconds / 6))
            else:
                await asyncio.sleep(self._lease_seconds / 3)

    async def _renew(self) -> None:
        active = dict(self._active)
        fences = await asyncio.shield(self._source.renew(active))
        for id_, held in active.items():
            if fences.get(id_) != held.fence and held in self._executing:
                with self._source.use_trace(held):
                    log.warning("lease lost", **self._ids(held))
                self._executing[held].cancel()

    async def _follow_changes(self) -> None:
        """Claims leases whenever there may be some without an owner."""
        async for _ in self._source.changes(self._active):
            self.claim_now()

    async def _claim_periodically(self) -> None:
        """Claims leases without an owner, at the latest after a third of a lease."""
        while True:
            self._claim_due.clear()
            while claimed := await self._source.claim(self._active):
                for each in claimed:
                    await self._take_over(each)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._claim_due.wait()

    async def _take_over(self, claimed: ClaimT) -> None:
        """Continues a run or batch; if that fails its lease expires, and after several failures it ends."""
        try:
            held = await self._source.load(claimed)
        except Unavailable as error:
            log.warning("takeover failed: journal unavailable", **self._ids(claimed), error=error.message)
        except Exception as error:  # noqa: BLE001  # after several failures it ends the run or batch
            log.warning("takeover failed", **self._ids(claimed), error=repr(error.__cause__ or error))
            if self._failed_takeovers.add(claimed.id, error):
                await self._fail(claimed, error)
        else:
            self.start(held)

    async def _fail(self, lease: Lease, error: Exception) -> None:
        """Ends a run or batch that cannot be continued; if the journal is unavailable, a later attempt does."""
        failure, ids = takeover_failure(self._source.kind, error), self._ids(lease)
        try:
            await self._source.fail(lease, failure)
        except Unavailable as unavailable:
            log.warning("failure not stored: journal unavailable", **ids, error=unavailable.message)
        except Exception:
            log.exception("failure not stored: internal error", **ids)
        else:
            self._failed_takeovers.forget(lease.id)
            log.error("ended: it cannot be continued", **ids, reason=failure.reason, exc_info=error)

    def _ids(self, lease: Lease) -> dict[str, str]:
        """The field of log events that names a run or batch."""
        return {f"{self._source.kind}_id": lease.id}


async def _cancel(tasks: "Collection[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class FailedTakeovers:
    """Failed takeovers in this process by run or batch ID, without those caused by transient errors."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, key: str, error: Exception) -> bool:
        """Counts a failed takeover; returns whether it was the last attempt."""
        if is_transient(error):
            return False
        self._counts[key] += 1
        if len(self._counts) > MAX_COUNTED:
            del self._counts[next(iter(self._counts))]
        return self._counts[key] >= TAKEOVER_ATTEMPTS

    def forget(self, key: str) -> None:
        """Drops the count, because the run or batch has ended or was continued."""
        self._counts.pop(key, None)


def is_transient(error: BaseException) -> bool:
    """Whether an error may pass without a change of the stored data, such as an unavailable database."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_transient(each) for each in error.exceptions)
    refused = isinstance(error, FailedPrecondition) and error.reason == "DATABASE"
    return refused or isinstance(error, Unavailable | OSError)


def takeover_failure(kind: str, error: Exception) -> Failure:
    """The failure of a run or batch that cannot be continued.

    Args:
        kind: "run" or "batch".
        error: of the last takeover; its text is only logged, because it may contain user data.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CorruptData):
        return Failure(
            reason=error.reason,
            code=error.code.value[0],
            message=f"the stored data of this {kind} cannot be read",
            remedy=f"start the {kind} again; the orchestrator's log has the error",
        )
    return Failure(
        reason="INTERNAL",
        code=code_pb2.INTERNAL,
        message=f"this {kind} could not be continued in {TAKEOVER_ATTEMPTS} attempts: internal error",
        remedy=f"start the {kind} again; the orchestrator's log has the error",
    )
