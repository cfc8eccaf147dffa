"""Leases of runs for the lease manager: claims and loads runs without an owner, renews and releases leases."""

from asyncio import Future
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import structlog

from protos.hugginggpt.v1.event_pb2 import RunEvent, TakenOver
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_FAILED, RunState
from services.orchestrator import metrics
from services.orchestrator.journal import Journal
from services.orchestrator.journal.leases import APPROVE, CANCEL, Command, Lease
from services.orchestrator.journal.runs import RunRow, unreadable
from services.orchestrator.notifier import ChangeNotifier
from services.orchestrator.runs import spans
from services.orchestrator.runs.history import read_events
from services.orchestrator.runs.run_limiter import RunLimiter
from services.orchestrator.runs.run_log import RunLog

log = structlog.get_logger(__name__)

CLAIM_LIMIT = 16
"""Runs claimed at a time: each must be loaded before its lease expires, and other orchestrators claim runs, too."""


@dataclass(frozen=True)
class ClaimedRun:
    """A run that this process has claimed, with its commands, oldest first."""

    row: RunRow
    commands: Sequence[Command]

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def fence(self) -> int:
        return self.row.fence


class RunLeaseSource:
    """The leases of runs, for the lease manager.

    Args:
        journal: stores them.
        limiter: limits how many this process may hold.
        notifier: of watchers of runs.
    """

    kind = "run"

    def __init__(self, journal: Journal, limiter: RunLimiter, notifier: ChangeNotifier) -> None:
        self._journal = journal
        self._limiter = limiter
        self._notifier = notifier

    async def claim(self, active: Mapping[str, RunLog]) -> list[ClaimedRun]:
        """Claims runs without an owner while slots are free."""
        limit = min(self._limiter.free_slots, CLAIM_LIMIT)
        if not limit or not (rows := await self._journal.claim(limit, list(active))):
            return []
        commands: defaultdict[str, list[Command]] = defaultdict(list)
        for command in await self._journal.commands():
            commands[command.run_id].append(command)
        return [ClaimedRun(row, commands[row.id]) for row in rows]

    async def load(self, claimed: ClaimedRun) -> RunLog:
        """Loads a claimed run from its events, and applies its commands.

        Raises:
            CorruptData: its stored data cannot be read.
            Unavailable: the journal is unavailable.
        """
        row = claimed.row
        if not row.is_readable:
            raise unreadable(row.id)
        events = await read_events(row.id, self._journal)
        try:
            run = RunLog(self._journal, row.id, row.fence, row.caller, events)
        except Exception as error:
            raise unreadable(row.id) from error
        if not run.is_awaiting_approval:
            run.emit(RunEvent(taken_over=TakenOver(owner=row.owner, reason="the lease of its orchestrator expired")))
            metrics.runs_taken_over.add(1)
            with spans.takeover_span(run):
                log.info("run taken over", run_id=row.id, events=row.last_sequence)
        for command in claimed.commands:
            if command.kind == CANCEL:
                run.cancel()
            elif command.kind == APPROVE:
                run.approval = run.approval or command.payload
        return run

    def renew(self, active: Collection[str]) -> Future[dict[str, int]]:
        """Renews leases; returns the fencing tokens of the runs that this process still owns."""
        return self._journal.renew(active)

    async def release(self) -> None:
        """Releases all runs of this process; their watchers get an error and retry."""
        self._notifier.notify(None)
        await self._journal.release()

    async def fail(self, lease: Lease, failure: Failure) -> None:
        """Ends a run that cannot be continued as FAILED."""
        await self._journal.fail(lease.id, lease.fence, failure)
        self._notifier.notify((lease.id,))
        metrics.runs_ended.add(1, {"state": RunState.Name(RUN_STATE_FAILED), "reason": metrics.reason(failure.reason)})

    async def changes(self, active: Mapping[str, RunLog]) -> AsyncIterator[None]:
        """Notifies watchers of changes in the journal, cancels runs on command, and yields if runs have no owner."""
        async for run_ids in self._journal.changes():
            self._notifier.notify(run_ids)
            if active and (run_ids is None or not run_ids.isdisjoint(active)):
                for command in await self._journal.commands():
                    run = active.get(command.run_id)
                    if run and command.kind == CANCEL and not run.cancel_reason:
                        run.cancel()
            if await self._journal.overdue():
                yield

    def released(self, held: RunLog) -> None:
        """Notifies the run's watchers, who continue with the journal."""
        self._notifier.notify((held.id,))

    def use_trace(self, held: RunLog) -> AbstractContextManager[None]:
        """Makes the run's span the current one within the block."""
        return spans.use_run_span(held.trace)
