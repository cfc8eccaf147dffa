"""The runs this process owns, and the ways to look at any run."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Self

import structlog

from protos.hugginggpt.v1.types_pb2 import Run, RunEvent, RunSpec, RunState, TakenOver
from services.orchestrator import acceptance
from services.orchestrator.conversation import events_of
from services.orchestrator.driver import Driver
from services.orchestrator.journal import Journal
from services.orchestrator.live import JOURNAL_PAUSE_SECONDS, LiveRun
from services.orchestrator.pipeline import Pipeline
from services.orchestrator.tables import NewRun, Row
from services.orchestrator.view import RunView
from services.runtime import caller
from services.runtime.errors import Overloaded, Unavailable

log = structlog.get_logger(__name__)

CANCEL = "cancel"
"""The kind of command that asks a run to stop."""


def owner_name() -> str:
    """Unique among all orchestrators."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class Runs:
    """Accepts runs, has them driven, and shows them to whoever watches.

    Args:
        journal: where they are kept.
        pipeline: what they go through.
        max_runs: most runs under way at once.
        run_seconds: most time a run can have.
        lease_seconds: the journal's; a third of it passes between renewals.
    """

    def __init__(
        self, journal: Journal, pipeline: Pipeline, *, max_runs: int, run_seconds: float, lease_seconds: float
    ) -> None:
        self._journal = journal
        self._pipeline = pipeline
        self._driver = Driver(pipeline, journal)
        self._max_runs = max_runs
        self._run_seconds = run_seconds
        self._heartbeat_seconds = lease_seconds / 3
        self._live: dict[str, LiveRun] = {}
        self._driving: dict[LiveRun, asyncio.Task[None]] = {}
        self._accepting = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._watching: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for step, seconds in ((self._beat, self._heartbeat_seconds), (self._look, 0.0)):
            self._watching.append(asyncio.create_task(_forever(step, seconds), name=step.__name__))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        tasks = [*self._watching, *self._driving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._journal.release()
        except Unavailable as error:
            log.warning("runs are handed over late: the journal does not answer", error=error.message)

    async def accept(self, spec: RunSpec) -> str:
        """Keeps a run and starts it; gives its id, or that of the earlier run with the same idempotency key.

        Raises:
            InvalidRequest: there is nothing to do, or the supplied plan is not valid.
            Overloaded: too many runs are under way.
            AlreadyExists: IDEMPOTENCY, the key stands for another request.
            NotFound: RUN, there is no such parent.
            Unavailable: the journal or, for a supplied plan, the planner does not answer.
        """
        acceptance.check(spec)
        if len(self._live) + self._accepting >= self._max_runs:
            raise Overloaded(
                f"{self._max_runs} runs are under way", remedy="try again soon", retry_after=timedelta(seconds=1)
            )
        self._accepting += 1
        try:
            return await self._accept(spec)
        finally:
            self._accepting -= 1

    async def _accept(self, spec: RunSpec) -> str:
        who = caller.current()
        asked = acceptance.digest(spec, who)
        parent = await self._journal.row(spec.parent_run_id, who.tenant) if spec.parent_run_id else None
        if spec.HasField("plan"):
            spec.plan.CopyFrom(await self._pipeline.check(acceptance.plan_to_check(spec)))
        new = acceptance.new_run(spec, who, parent, asked, self._run_seconds)
        keeping = self._journal.accept(new)
        keeping.add_done_callback(partial(self._start_kept, new))
        return await asyncio.shield(keeping)  # a caller that leaves now does not undo it

    def _start_kept(self, new: NewRun, kept: "asyncio.Future[str]") -> None:
        if not kept.exception() and kept.result() == new.id:
            self._start(LiveRun(self._journal, new.id, 1, new.caller, [new.first]), new.parent_id)

    async def watch(self, run_id: str, after: int) -> AsyncGenerator[RunEvent]:
        """Events numbered above after, to the run's end.

        Raises:
            NotFound: RUN.
            Unavailable: the run goes on elsewhere; watch again.
        """
        after = max(after, 0)
        run = self._live.get(run_id)
        if run and run.caller.tenant == caller.current().tenant:
            async with aclosing(run.feed.after(after)) as events:
                async for event in events:
                    yield event
            return
        ended = (await self._journal.row(run_id, caller.current().tenant)).ended
        while True:
            changed = self._changed
            while page := await self._journal.events(run_id, after):
                for event in page:
                    yield event
                after, ended = page[-1].sequence, page[-1].HasField("run_ended")
            if ended:
                return
            await changed.wait()

    async def get(self, run_id: str) -> Run:
        """A run as it stands.

        Raises:
            NotFound: RUN.
        """
        await self._journal.row(run_id, caller.current().tenant)
        return RunView(await events_of(run_id, self._journal)).snapshot()

    async def rows(
        self,
        *,
        limit: int,
        before: tuple[float, str] | None,
        states: "Sequence[RunState.ValueType]",
        conversation_id: str,
        created_after: float,
    ) -> list[Row]:
        """The caller's runs, newest first, older than a (created, id)."""
        return await self._journal.rows(
            caller.current().tenant,
            limit=limit,
            before=before,
            states=states,
            conversation_id=conversation_id,
            created_after=created_after,
        )

    async def cancel(self, run_id: str) -> None:
        """Keeps the wish that a run stop, and stops it if it is here.

        Raises:
            NotFound: RUN.
        """
        row = await self._journal.row(run_id, caller.current().tenant)
        if row.ended:
            return
        await self._journal.command(run_id, CANCEL)
        if run := self._live.get(run_id):
            run.cancel()

    async def delete(self, run_id: str) -> None:
        """Removes an ended run.

        Raises:
            NotFound: RUN.
            FailedPrecondition: RUNNING, it has not ended.
        """
        await self._journal.delete(run_id, caller.current().tenant)

    def _start(self, run: LiveRun, parent_id: str) -> None:
        if self._closed:
            return
        self._live[run.id] = run
        self._driving[run] = asyncio.create_task(self._driver.drive(run, parent_id), name=run.id)
        self._driving[run].add_done_callback(partial(self._left, run))

    def _left(self, run: LiveRun, driving: asyncio.Task[None]) -> None:
        del self._driving[run]
        if self._live.get(run.id) is run:
            del self._live[run.id]
        if not driving.cancelled() and (error := driving.exception()):
            log.error("a run was let go", run_id=run.id, exc_info=error)

    async def _beat(self) -> None:
        """Keeps this process's runs, lets go of those it has lost, and takes those that others have left."""
        held = dict(self._live)
        fences = await self._journal.renew(held)
        for run_id, run in held.items():
            if fences.get(run_id) != run.fence and run in self._driving:
                log.warning("run lost to another orchestrator", run_id=run_id)
                self._driving[run].cancel()
        if claimed := await self._journal.claim(max(0, self._max_runs - len(self._live)), self._live):
            cancelled = await self._cancelled()
            for row in claimed:
                await self._take_over(row, cancel_asked=row.id in cancelled)

    async def _take_over(self, row: Row, *, cancel_asked: bool) -> None:
        """Goes on with a run whose orchestrator has not been heard of; if it cannot, its lease will run out again."""
        try:
            events = await events_of(row.id, self._journal)
            run = LiveRun(self._journal, row.id, row.fence, row.caller, events)
            run.emit(RunEvent(taken_over=TakenOver(owner=row.owner, reason="its orchestrator was not heard of")))
        except Exception:
            log.exception("a run cannot be taken over", run_id=row.id)
            return
        log.info("run taken over", run_id=row.id, events=row.seq)
        run.cancel_asked = cancel_asked
        self._start(run, row.parent_id)

    async def _look(self) -> None:
        """Tells watchers of other processes' runs of what has been written, and does what others have asked of ours."""
        async for _ in self._journal.changes():
            woken, self._changed = self._changed, asyncio.Event()
            woken.set()
            for run_id in await self._cancelled():
                run = self._live.get(run_id)
                if run and not run.cancel_asked:
                    run.cancel()

    async def _cancelled(self) -> set[str]:
        return {command.run_id for command in await self._journal.commands() if command.kind == CANCEL}


async def _forever(step: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Does a step again and again; what goes wrong with one is told, and does not keep the next from being done."""
    while True:
        try:
            await step()
        except Unavailable as error:
            log.warning("the journal does not answer", error=error.message)
            await asyncio.sleep(JOURNAL_PAUSE_SECONDS)
        except Exception:
            log.exception("unexpected error")
            await asyncio.sleep(JOURNAL_PAUSE_SECONDS)
        await asyncio.sleep(seconds)
