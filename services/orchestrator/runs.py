"""The runs this process owns, and the ways to look at any run."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Self

import structlog

from protos.hugginggpt.v1.types_pb2 import Run, RunEvent, RunSpec, RunState, TakenOver
from services.orchestrator import acceptance
from services.orchestrator.conversation import events_of
from services.orchestrator.driver import Driver
from services.orchestrator.journal import Journal
from services.orchestrator.live import LiveRun
from services.orchestrator.pipeline import Pipeline
from services.orchestrator.tables import Row
from services.orchestrator.view import RunView
from services.runtime import caller
from services.runtime.errors import Overloaded, Unavailable

log = structlog.get_logger(__name__)

CHANGES_SECONDS = 0.05
"""How soon this process sees what another one has written."""


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
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        for work in (self._heartbeat(), self._follow_changes()):
            self._tasks.add(asyncio.create_task(work))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._journal.release()

    async def accept(self, spec: RunSpec) -> str:
        """Keeps a run and starts it; gives its id, or that of the earlier run with the same idempotency key.

        Raises:
            InvalidRequest: there is nothing to do, or the supplied plan is not valid.
            Overloaded: too many runs are under way.
            AlreadyExists: IDEMPOTENCY, the key stands for another request.
            NotFound: RUN, there is no such parent.
        """
        acceptance.check(spec)
        if len(self._live) >= self._max_runs:
            raise Overloaded(
                f"{self._max_runs} runs are under way", remedy="try again soon", retry_after=timedelta(seconds=1)
            )
        who = caller.current()
        asked = acceptance.digest(spec, who)
        parent = await self._journal.row(spec.parent_run_id, who.tenant) if spec.parent_run_id else None
        if spec.HasField("plan"):
            spec.plan.CopyFrom(await self._pipeline.check(acceptance.plan_to_check(spec)))
        new = acceptance.new_run(spec, who, parent, asked, self._run_seconds)
        kept = await self._journal.accept(new)
        if kept == new.id:
            self._start(LiveRun(self._journal, new.id, 1, new.caller, [new.first]), new.parent_id)
        return kept

    async def watch(self, run_id: str, after: int) -> AsyncGenerator[RunEvent]:
        """Events numbered above after, to the run's end.

        Raises:
            NotFound: RUN.
            Unavailable: the run goes on elsewhere; watch again.
        """
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
        await self._journal.command(run_id, "cancel")
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
        self._live[run.id] = run
        driving = asyncio.create_task(self._driver.drive(run, parent_id), name=run.id)
        self._tasks.add(driving)
        driving.add_done_callback(self._tasks.discard)
        driving.add_done_callback(lambda _: self._live.pop(run.id, None))

    async def _heartbeat(self) -> None:
        while True:
            try:
                await self._journal.renew()
                await self._take_over()
            except Unavailable as error:
                log.warning("the journal does not answer", error=error.message)
            await asyncio.sleep(self._heartbeat_seconds)

    async def _take_over(self) -> None:
        """Goes on with runs whose orchestrator has not been heard of."""
        for row in await self._journal.claim(max(0, self._max_runs - len(self._live))):
            events = await events_of(row.id, self._journal)
            run = LiveRun(self._journal, row.id, row.fence, row.caller, events)
            run.emit(RunEvent(taken_over=TakenOver(owner=row.owner, reason="its orchestrator was not heard of")))
            log.info("run taken over", run_id=row.id, events=row.seq)
            run.cancel_asked = row.id in {run_id for run_id, _ in await self._journal.commands()}
            self._start(run, row.parent_id)

    async def _follow_changes(self) -> None:
        seen = -1
        while True:
            try:
                version = await self._journal.version()
                if version != seen:
                    seen = version
                    woken, self._changed = self._changed, asyncio.Event()
                    woken.set()
                    await self._obey()
            except Unavailable as error:
                log.warning("the journal does not answer", error=error.message)
            await asyncio.sleep(CHANGES_SECONDS)

    async def _obey(self) -> None:
        """Does what others have asked of this process's runs."""
        for run_id, _ in await self._journal.commands():
            run = self._live.get(run_id)
            if run and not run.cancel_asked:
                run.cancel()
