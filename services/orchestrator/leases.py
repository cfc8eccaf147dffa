"""The runs this process owns: begun here or taken over, kept by its heartbeat, handed over when it stops."""

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
from services.orchestrator.notifier import Bells
from services.orchestrator.runs import approval, spans
from services.orchestrator.runs.conversation import events_of
from services.orchestrator.runs.executor import Driver
from services.orchestrator.runs.run_log import JOURNAL_PAUSE_SECONDS, LiveRun

log = structlog.get_logger(__name__)

CANCEL, APPROVE = "cancel", "approve"
"""Kinds of commands: stop, and let the waiting plan run."""

Left = Callable[[LiveRun], None]

CLAIMED_AT_ONCE = 16
"""Runs taken at a time: each must be read before its lease is over, and other orchestrators have room too."""


def owner_name() -> str:
    """Unique among all orchestrators."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def stopping() -> Unavailable:
    """What is said to who must ask another orchestrator."""
    return Unavailable("this orchestrator is stopping", remedy="ask again: another one answers")


class Ownership:
    """Has runs driven as long as they are this process's.

    Args:
        journal: which says whose a run is.
        driver: takes a run to its end.
        room: how many more runs may be taken over now.
        lease_seconds: the journal's; a third of it passes between renewals.
    """

    def __init__(self, journal: Journal, driver: Driver, room: Callable[[], int], *, lease_seconds: float) -> None:
        self.live: dict[str, LiveRun] = {}
        self.bells = Bells()
        self.closed = False
        self._journal = journal
        self._driver = driver
        self._room = room
        self._lease_seconds = lease_seconds
        self._driving: dict[LiveRun, asyncio.Task[None]] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._wanted = asyncio.Event()
        self._faults = FaultCounter()

    async def __aenter__(self) -> Self:
        for loop, name in ((self._beat, "run leases"), (self._follow, "journal changes"), (self._take, "run takeover")):
            self._watching.append(asyncio.create_task(supervise(loop, name=name), name=name))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hand_over()

    def start(self, run: LiveRun, parent_id: str, left: Left | None = None) -> None:
        """Drives a run, unless this process stops: then it is for another.

        Args:
            run: the run.
            parent_id: the run it continues.
            left: told once it is not driven here any more.
        """
        if self.closed:
            if left:
                left(run)
            return
        self.live[run.id] = run
        self._driving[run] = asyncio.create_task(self._drive(run, parent_id), name=run.id)
        self._driving[run].add_done_callback(partial(self._left, run, left))

    async def _drive(self, run: LiveRun, parent_id: str) -> None:
        """Drives a run; one that cannot be driven is ended once that has failed often enough."""
        try:
            await self._driver.drive(run, parent_id)
        except Exception as error:
            if not self._faults.add(run.id, error):
                raise
            with spans.driving(run.trace):
                await self._fail(run.id, run.fence, error)
        else:
            self._faults.forget(run.id)

    async def left(self, run: LiveRun) -> None:
        """Waits until a run is not driven here any more."""
        if run in self._driving:
            await asyncio.wait([self._driving[run]])

    def look(self) -> None:
        """Has runs taken that nobody owns: left by their orchestrator, or let go of and wanted again."""
        self._wanted.set()

    async def hand_over(self) -> None:
        """Stops driving and lets go of all runs, for others to take at once."""
        self.closed = True
        if not self._watching:
            return
        watching, self._watching = self._watching, []
        await self._let_go([*watching, *self._driving.values()])
        self.bells.ring(None)
        try:
            await self._journal.release()
        except Unavailable as error:
            log.warning("runs are handed over late: the journal does not answer", error=error.message)

    async def _let_go(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _left(self, run: LiveRun, left: Left | None, driving: asyncio.Task[None]) -> None:
        del self._driving[run]
        if self.live.get(run.id) is run:
            del self.live[run.id]
        self.bells.ring((run.id,))
        if left:
            left(run)
        if not driving.cancelled() and (error := driving.exception()):
            with spans.driving(run.trace):
                log.error("a run was let go", run_id=run.id, exc_info=error)

    async def _beat(self) -> None:
        """Keeps this process's runs, and lets go of those it has lost or cannot keep."""
        renewed = time.monotonic()
        while True:
            try:
                begun = time.monotonic()
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._renew()
                renewed = begun
            except Exception as error:  # any: the leases that are not renewed run out meanwhile
                if isinstance(error, Unavailable | TimeoutError):
                    log.warning("the journal does not answer", error=str(error) or "it takes too long")
                else:
                    log.exception("leases of runs cannot be renewed")
                if self.live and time.monotonic() - renewed > self._lease_seconds * 2 / 3:
                    log.warning("runs are let go: their leases cannot be renewed", runs=len(self.live))
                    await self._let_go(list(self._driving.values()))
                await asyncio.sleep(min(JOURNAL_PAUSE_SECONDS, self._lease_seconds / 6))
            else:
                await asyncio.sleep(self._lease_seconds / 3)

    async def _renew(self) -> None:
        held = dict(self.live)
        fences = await asyncio.shield(self._journal.renew(held))
        for run_id, run in held.items():
            if fences.get(run_id) != run.fence and run in self._driving:
                with spans.driving(run.trace):
                    log.warning("run lost to another orchestrator", run_id=run_id)
                self._driving[run].cancel()

    async def _follow(self) -> None:
        """Wakes watchers of what others have written, does what others ask of runs here, and looks for runs let go."""
        async for run_ids in self._journal.changes():
            self.bells.ring(run_ids)
            if self.live and (run_ids is None or not run_ids.isdisjoint(self.live)):
                for command in await self._journal.commands():
                    run = self.live.get(command.run_id)
                    if run and command.kind == CANCEL and not run.cancelled:
                        run.cancel()
            if await self._journal.overdue():
                self.look()

    async def _take(self) -> None:
        """Takes runs that nobody owns, for as long as there is room."""
        while True:
            self._wanted.clear()
            while limit := min(self._room(), CLAIMED_AT_ONCE):
                if not (rows := await self._journal.claim(limit, list(self.live))):
                    break
                await self._take_all_up(rows)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._wanted.wait()

    async def _take_all_up(self, rows: Sequence[Row]) -> None:
        commands: defaultdict[str, list[Command]] = defaultdict(list)
        for command in await self._journal.commands():
            commands[command.run_id].append(command)
        for row in rows:
            await self._take_up(row, commands[row.id])

    async def _take_up(self, row: Row, commands: list[Command]) -> None:
        """Continues a claimed run; if that fails its lease expires, and after several failures the run ends."""
        try:
            run = await self._loaded(row)
        except Unavailable as error:
            log.warning("a run is not taken over: the journal does not answer", run_id=row.id, error=error.message)
            return
        except Exception as error:  # noqa: BLE001  # after several failures it is why the run ends
            log.warning("a run cannot be taken over", run_id=row.id, error=repr(error.__cause__ or error))
            if self._faults.add(row.id, error):
                await self._fail(row.id, row.fence, error)
            return
        for command in commands:
            if command.kind == CANCEL:
                run.cancel()
            elif command.kind == APPROVE:
                run.approval = run.approval or command.payload
        self.start(run, row.parent_id)

    async def _loaded(self, row: Row) -> LiveRun:
        """A claimed run as its events have it.

        Raises:
            CorruptData: what is stored of it cannot be read.
            Unavailable: the journal does not answer.
        """
        if not row.is_readable:
            raise unreadable(row.id)
        events = await events_of(row.id, self._journal)
        try:
            run = LiveRun(self._journal, row.id, row.fence, row.caller, events)
        except Exception as error:
            raise unreadable(row.id) from error
        if not approval.is_awaited(run):
            run.emit(RunEvent(taken_over=TakenOver(owner=row.owner, reason="its orchestrator was not heard of")))
            metrics.runs_taken_over.add(1)
            with spans.taking_over(run):
                log.info("run taken over", run_id=row.id, events=row.seq)
        return run

    async def _fail(self, run_id: str, fence: int, error: Exception) -> None:
        """Ends a run that cannot be continued, unless the journal does not take that: then a later attempt does."""
        failure = failure_of("run", error)
        try:
            await self._journal.fail(run_id, fence, failure)
        except Unavailable as unavailable:
            log.warning("a run that cannot be continued is not ended yet", run_id=run_id, error=unavailable.message)
            return
        except Exception:
            log.exception("a run that cannot be continued is not ended yet", run_id=run_id)
            return
        self._faults.forget(run_id)
        self.bells.ring((run_id,))
        metrics.runs_ended.add(1, {"state": RunState.Name(RUN_STATE_FAILED), "reason": metrics.reason(failure.reason)})
        log.error("run ended: it cannot be continued", run_id=run_id, reason=failure.reason, exc_info=error)
