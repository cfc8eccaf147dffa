"""Leases of runs: renews them, claims runs without an owner, and releases all runs when the process stops."""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import structlog

from protos.hugginggpt.v1.event_pb2 import RunEvent, TakenOver
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_FAILED, RunState
from services.common.errors import Unavailable
from services.common.supervision import supervise
from services.orchestrator import metrics
from services.orchestrator.faults import FaultCounter, failure_of
from services.orchestrator.journal import Journal
from services.orchestrator.journal.errors import unreadable
from services.orchestrator.journal.tables import Command, Row
from services.orchestrator.notifier import RunNotifier
from services.orchestrator.runs import approval, spans
from services.orchestrator.runs.conversation import events_of
from services.orchestrator.runs.executor import RunExecutor
from services.orchestrator.runs.run_log import JOURNAL_PAUSE_SECONDS, RunLog

log = structlog.get_logger(__name__)

CANCEL, APPROVE = "cancel", "approve"
"""Kinds of commands: cancel the run, or approve its plan."""

OnRelease = Callable[[RunLog], None]

CLAIM_LIMIT = 16
"""Runs claimed at a time: each must be loaded before its lease expires, and other orchestrators claim runs, too."""


def owner_name() -> str:
    """A name for this process that is unique among all orchestrators."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def stopping_error() -> Unavailable:
    """The error for callers of a process that is stopping."""
    return Unavailable("this orchestrator is stopping", remedy="retry: another orchestrator serves the request")


class LeaseManager:
    """Executes the runs whose leases this process holds.

    Args:
        journal: stores the leases.
        executor: executes a run to its end.
        free_slots: returns how many more runs may be claimed now.
        lease_seconds: of the journal; leases are renewed after a third of it.
    """

    def __init__(
        self, journal: Journal, executor: RunExecutor, free_slots: Callable[[], int], *, lease_seconds: float
    ) -> None:
        self.active: dict[str, RunLog] = {}
        self.notifier = RunNotifier()
        self.closed = False
        self._journal = journal
        self._executor = executor
        self._free_slots = free_slots
        self._lease_seconds = lease_seconds
        self._executing: dict[RunLog, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._claim_due = asyncio.Event()
        self._faults = FaultCounter()

    async def __aenter__(self) -> Self:
        for loop, name in (
            (self._renew_periodically, "run leases"),
            (self._follow_changes, "journal changes"),
            (self._claim_periodically, "run takeover"),
        ):
            self._loops.append(asyncio.create_task(supervise(loop, name=name), name=name))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release_all()

    def start(self, run: RunLog, parent_id: str, on_release: OnRelease | None = None) -> None:
        """Starts to execute a run, unless this process stops: then another orchestrator claims it.

        Args:
            run: the run.
            parent_id: ID of the run it continues.
            on_release: called when this process no longer executes it.
        """
        if self.closed:
            if on_release:
                on_release(run)
            return
        self.active[run.id] = run
        self._executing[run] = asyncio.create_task(self._execute(run, parent_id), name=run.id)
        self._executing[run].add_done_callback(partial(self._released, run, on_release))

    async def _execute(self, run: RunLog, parent_id: str) -> None:
        """Executes a run; ends it as FAILED if that has failed repeatedly."""
        try:
            await self._executor.execute(run, parent_id)
        except Exception as error:
            if not self._faults.add(run.id, error):
                raise
            with spans.in_run(run.trace):
                await self._fail(run.id, run.fence, error)
        else:
            self._faults.forget(run.id)

    async def wait_released(self, run: RunLog) -> None:
        """Waits until this process no longer executes a run."""
        if run in self._executing:
            await asyncio.wait([self._executing[run]])

    def claim_now(self) -> None:
        """Claims runs without an owner immediately: released ones, and approved ones."""
        self._claim_due.set()

    async def release_all(self) -> None:
        """Stops executing and releases all runs, for other orchestrators to claim at once."""
        self.closed = True
        if not self._loops:
            return
        loops, self._loops = self._loops, []
        await self._cancel([*loops, *self._executing.values()])
        self.notifier.notify(None)
        try:
            await self._journal.release()
        except Unavailable as error:
            log.warning("leases of runs not released: journal unavailable", error=error.message)

    async def _cancel(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _released(self, run: RunLog, on_release: OnRelease | None, executing: asyncio.Task[None]) -> None:
        del self._executing[run]
        if self.active.get(run.id) is run:
            del self.active[run.id]
        self.notifier.notify((run.id,))
        if on_release:
            on_release(run)
        if not executing.cancelled() and (error := executing.exception()):
            with spans.in_run(run.trace):
                log.error("run released after an internal error", run_id=run.id, exc_info=error)

    async def _renew_periodically(self) -> None:
        """Renews the leases of this process; stops runs whose leases are lost or cannot be renewed."""
        renewed = time.monotonic()
        while True:
            try:
                started = time.monotonic()
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._renew()
                renewed = started
            except Exception as error:  # any: otherwise the leases would expire
                if isinstance(error, Unavailable | TimeoutError):
                    log.warning("leases of runs not renewed: journal unavailable", error=str(error) or "timeout")
                else:
                    log.exception("leases of runs not renewed: internal error")
                if self.active and time.monotonic() - renewed > self._lease_seconds * 2 / 3:
                    log.warning("runs released: leases not renewed", runs=len(self.active))
                    await self._cancel(list(self._executing.values()))
                await asyncio.sleep(min(JOURNAL_PAUSE_SECONDS, self._lease_seconds / 6))
            else:
                await asyncio.sleep(self._lease_seconds / 3)

    async def _renew(self) -> None:
        held = dict(self.active)
        fences = await asyncio.shield(self._journal.renew(held))
        for run_id, run in held.items():
            if fences.get(run_id) != run.fence and run in self._executing:
                with spans.in_run(run.trace):
                    log.warning("run lease lost", run_id=run_id)
                self._executing[run].cancel()

    async def _follow_changes(self) -> None:
        """Notifies watchers of journal changes, applies cancel commands, and claims released runs."""
        async for run_ids in self._journal.changes():
            self.notifier.notify(run_ids)
            if self.active and (run_ids is None or not run_ids.isdisjoint(self.active)):
                for command in await self._journal.commands():
                    run = self.active.get(command.run_id)
                    if run and command.kind == CANCEL and not run.cancel_reason:
                        run.cancel()
            if await self._journal.overdue():
                self.claim_now()

    async def _claim_periodically(self) -> None:
        """Claims runs without an owner while slots are free."""
        while True:
            self._claim_due.clear()
            while limit := min(self._free_slots(), CLAIM_LIMIT):
                if not (rows := await self._journal.claim(limit, list(self.active))):
                    break
                await self._resume_all(rows)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._claim_due.wait()

    async def _resume_all(self, rows: Sequence[Row]) -> None:
        commands: defaultdict[str, list[Command]] = defaultdict(list)
        for command in await self._journal.commands():
            commands[command.run_id].append(command)
        for row in rows:
            await self._resume(row, commands[row.id])

    async def _resume(self, row: Row, commands: list[Command]) -> None:
        """Continues a claimed run; if that fails its lease expires, and after several failures the run ends."""
        try:
            run = await self._load(row)
        except Unavailable as error:
            log.warning("run not resumed: journal unavailable", run_id=row.id, error=error.message)
            return
        except Exception as error:  # noqa: BLE001  # after several failures it becomes the run's failure
            log.warning("run not resumed", run_id=row.id, error=repr(error.__cause__ or error))
            if self._faults.add(row.id, error):
                await self._fail(row.id, row.fence, error)
            return
        for command in commands:
            if command.kind == CANCEL:
                run.cancel()
            elif command.kind == APPROVE:
                run.approval = run.approval or command.payload
        self.start(run, row.parent_id)

    async def _load(self, row: Row) -> RunLog:
        """Loads a claimed run from its events.

        Raises:
            CorruptData: its stored data cannot be read.
            Unavailable: the journal is unavailable.
        """
        if not row.is_readable:
            raise unreadable(row.id)
        events = await events_of(row.id, self._journal)
        try:
            run = RunLog(self._journal, row.id, row.fence, row.caller, events)
        except Exception as error:
            raise unreadable(row.id) from error
        if not approval.is_awaited(run):
            run.emit(RunEvent(taken_over=TakenOver(owner=row.owner, reason="the lease of its orchestrator expired")))
            metrics.runs_taken_over.add(1)
            with spans.taking_over(run):
                log.info("run taken over", run_id=row.id, events=row.seq)
        return run

    async def _fail(self, run_id: str, fence: int, error: Exception) -> None:
        """Ends a run that cannot be continued; if the journal is unavailable, a later attempt does."""
        failure = failure_of("run", error)
        try:
            await self._journal.fail(run_id, fence, failure)
        except Unavailable as unavailable:
            log.warning("failed run not ended: journal unavailable", run_id=run_id, error=unavailable.message)
            return
        except Exception:
            log.exception("failed run not ended: internal error", run_id=run_id)
            return
        self._faults.forget(run_id)
        self.notifier.notify((run_id,))
        metrics.runs_ended.add(1, {"state": RunState.Name(RUN_STATE_FAILED), "reason": metrics.reason(failure.reason)})
        log.error("run ended: it cannot be continued", run_id=run_id, reason=failure.reason, exc_info=error)
