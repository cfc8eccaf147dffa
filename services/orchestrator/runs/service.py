"""Runs as callers know them: accepted, watched, looked at, cancelled, approved, deleted."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Self

import structlog

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.gateway_pb2 import ApproveRunRequest
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import (
    ON_DISCONNECT_CANCEL,
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_QUEUED,
    BatchPosition,
    Run,
    RunSpec,
)
from services.common import call_context
from services.common.errors import CorruptData, FailedPrecondition
from services.orchestrator.journal import Journal
from services.orchestrator.journal.tables import Ended, NewRun, Row
from services.orchestrator.leases import APPROVE, CANCEL, Left, Ownership, stopping
from services.orchestrator.pipelines.service import Pipelines
from services.orchestrator.runs import acceptance
from services.orchestrator.runs.admission import Admission
from services.orchestrator.runs.conversation import events_after, view_of
from services.orchestrator.runs.executor import Driver
from services.orchestrator.runs.forwarding import Forwarding
from services.orchestrator.runs.pending_runs import Keeping
from services.orchestrator.runs.run_log import LiveRun
from services.orchestrator.runs.run_state import summarize
from services.orchestrator.runs.workflow import Pipeline

log = structlog.get_logger(__name__)


_MOST_EVENTS = 2**53
"""No run has so many; what comes after that comes after its end."""


class Runs:
    """Accepts runs, has them driven, and shows them to whoever watches.

    Args:
        journal: where they are kept.
        pipeline: what they go through.
        forwarding: passes wishes on to the orchestrators that own the runs.
        pipelines: plans kept under names.
        max_runs: most runs under way at once.
        max_bytes: most memory their events may take.
        run_seconds: most time a run can have.
        lease_seconds: the journal's.
    """

    def __init__(
        self,
        journal: Journal,
        pipeline: Pipeline,
        forwarding: Forwarding,
        pipelines: Pipelines,
        *,
        max_runs: int,
        max_bytes: int,
        run_seconds: float,
        lease_seconds: float,
    ) -> None:
        self._journal = journal
        self._pipeline = pipeline
        self._forwarding = forwarding
        self._pipelines = pipelines
        self._run_seconds = run_seconds
        self._keeping = Keeping()
        driver = Driver(pipeline, journal)
        self._owned = Ownership(journal, driver, lambda: self.admission.free, lease_seconds=lease_seconds)
        self.bells = self._owned.bells
        self.admission = Admission(
            self._owned.live, most_runs=max_runs, most_bytes=max_bytes, behind=self._keeping.behind
        )

    async def __aenter__(self) -> Self:
        await self._owned.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hand_over()

    async def hand_over(self) -> None:
        """Lets go of all runs, for other orchestrators to take at once; who watches is sent to them."""
        self._owned.closed = True
        await self._keeping.done()
        await self._owned.hand_over()

    @property
    def closed(self) -> bool:
        """This process stops: its runs are others'."""
        return self._owned.closed

    async def accept(self, spec: RunSpec, position: BatchPosition | None = None) -> str:
        """Keeps a run and starts it; gives its id, or that of the earlier run with the same idempotency key.

        Args:
            spec: what it is asked to do.
            position: position in a batch, for the run that plans it.

        Raises:
            InvalidRequest: there is nothing to do, the supplied plan is not valid, or the inputs do not fit a pipeline.
            Overloaded: too many runs are under way.
            AlreadyExists: IDEMPOTENCY, the key stands for another request.
            NotFound: RUN, there is no such parent; or PIPELINE.
            FailedPrecondition: VANISHED, nobody offers a task of the pipeline, or its pinned model, any more.
            Unavailable: the journal or, for a supplied plan, the planner does not answer; or this process stops.
        """
        acceptance.check(spec)
        if self.closed:
            raise stopping()
        with self.admission.place(call_context.current().tenant, spec.ByteSize()):
            return await self._accept(spec, position)

    async def _accept(self, spec: RunSpec, position: BatchPosition | None) -> str:
        who = call_context.current()
        asked = acceptance.digest(spec, who)
        parent = await self._journal.row(spec.parent_run_id, who.tenant) if spec.parent_run_id else None
        if spec.HasField("pipeline"):
            who = await self._pipelines.fill(spec)
        elif spec.HasField("plan"):
            spec.plan.CopyFrom(await self._pipeline.check(acceptance.plan_to_check(spec, spec.plan)))
        new = acceptance.new_run(spec, acceptance.bound(who, parent), parent, asked, self._run_seconds, batch=position)
        keeping = self._keeping.add(self._journal.accept(new))
        keeping.add_done_callback(partial(self._start_kept, new))
        try:
            return await asyncio.shield(keeping)  # a caller that leaves now does not undo it
        except asyncio.CancelledError:
            if spec.on_disconnect == ON_DISCONNECT_CANCEL and not self.closed:
                keeping.add_done_callback(partial(self._cancel_kept, new.id))
            raise

    def _start_kept(self, new: NewRun, kept: "asyncio.Future[str]") -> None:
        if not kept.exception() and kept.result() == new.id:
            self.begin(new)

    def begin(self, new: NewRun, left: Left | None = None) -> None:
        """Drives a run that has just been kept; left is told once it is not driven here any more."""
        self._owned.start(LiveRun(self._journal, new.id, 1, new.caller, [new.first]), new.parent_id, left)

    async def finished(self, run_id: str) -> None:
        """Waits until a run of the caller's has ended, wherever it is driven.

        Raises:
            NotFound: RUN.
            Unavailable: this process stops, or the journal does not answer.
        """
        with self._owned.bells.listening(run_id) as bell:
            while not self.closed:
                bell.clear()
                if run := self._here(run_id):
                    await self._owned.left(run)
                    if run.feed.over:
                        return
                if (await self._journal.row(run_id, call_context.current().tenant)).ended:
                    return
                await bell.wait()
        raise stopping()

    def _cancel_kept(self, run_id: str, _: "asyncio.Future[str]") -> None:
        if run := self._owned.live.get(run_id):
            run.cancel()

    async def watch(self, run_id: str, after: int) -> AsyncGenerator[RunEvent]:
        """Events numbered above after, to the run's end, wherever it is driven.

        Raises:
            NotFound: RUN.
            Unavailable: this process stops, or the journal does not answer; watch again.
        """
        after, ended, tenant = min(max(after, 0), _MOST_EVENTS), False, call_context.current().tenant
        with self._owned.bells.listening(run_id) as bell:
            while not ended:
                bell.clear()
                stream = self._from_here(run_id, after) or events_after(run_id, after, tenant, self._journal)
                async with aclosing(stream) as events:
                    async for event in events:
                        yield event
                        after, ended = event.sequence, event.HasField("run_ended")
                if ended or (run_id not in self._owned.live and await self._is_over(run_id, after)):
                    return
                if self.closed:
                    raise stopping()
                await bell.wait()

    def _from_here(self, run_id: str, after: int) -> AsyncGenerator[RunEvent] | None:
        run = self._here(run_id)
        return run.feed.after(after) if run else None

    def _here(self, run_id: str) -> LiveRun | None:
        """The caller's run, if it is driven here."""
        run = self._owned.live.get(run_id)
        return run if run and run.caller.tenant == call_context.current().tenant else None

    async def _is_over(self, run_id: str, after: int) -> bool:
        """Whether the caller has seen the last event of an ended run."""
        row = await self._journal.row(run_id, call_context.current().tenant)
        return row.ended and after >= row.seq

    async def get(self, run_id: str) -> Run:
        """A run as it stands; one whose plan somebody has let run waits for a place alone.

        Of a run whose events cannot be read there are only its state and how it ended.

        Raises:
            NotFound: RUN.
        """
        await self.row(run_id)
        try:
            run = (await view_of(run_id, self._journal)).snapshot()
        except CorruptData:
            row = await self.row(run_id)  # with it the last event, which may have come meanwhile
            return summarize(row, await self._journal.last_event(row))
        if run.state == RUN_STATE_AWAITING_APPROVAL and await self._journal.wished(run_id):
            run.state = RUN_STATE_QUEUED
        return run

    async def row(self, run_id: str) -> Row:
        """A run of the caller's without what happened to it.

        Raises:
            NotFound: RUN.
        """
        return await self._journal.row(run_id, call_context.current().tenant)

    async def rows(self, **wanted: Any) -> list[Row]:
        """Runs of the caller's, newest first; wanted as the journal takes it."""
        return await self._journal.rows(call_context.current().tenant, **wanted)

    async def ended(self, since: float, after: tuple[float, str], limit: int) -> list[Ended]:
        """Runs of all tenants that ended since then, in seconds since the epoch, after an (ended, id)."""
        return await self._journal.ended(since, after, limit)

    async def cancel(self, run_id: str) -> None:
        """Stops a run where it is driven, and keeps the wish: at once if that is here, whatever the journal does.

        Raises:
            NotFound: RUN.
            Unavailable: the wish is not kept.
        """
        if run := self._here(run_id):
            run.cancel()
        row = await self._journal.row(run_id, call_context.current().tenant)
        if row.ended:
            return
        await self._journal.command(run_id, CANCEL)
        if run := self._here(run_id):  # it may have been taken up here meanwhile
            run.cancel()
        else:
            await self._forwarding.cancel(run_id, row.owner_address)

    async def approve(self, run_id: str, plan: Plan | None) -> None:
        """Keeps the word that the waiting plan, or another in its place, may run; it runs as soon as there is room.

        Raises:
            NotFound: RUN.
            FailedPrecondition: NOT_WAITING, no plan of it waits, or somebody was quicker.
            InvalidRequest: what is to run instead is not valid, or is more than the run may be.
        """
        row = await self._journal.row(run_id, call_context.current().tenant)
        if row.state != RUN_STATE_AWAITING_APPROVAL:
            raise _not_waiting(run_id)
        approved = ApproveRunRequest(run_id=run_id)
        if plan:
            spec = (await self._journal.events(run_id, 0, 1))[0].run_accepted.spec
            spec.plan.CopyFrom(plan)
            acceptance.check(spec)
            approved.plan.CopyFrom(await self._pipeline.check(acceptance.plan_to_check(spec, plan)))
        if not await self._journal.unpark(run_id, APPROVE, approved.SerializeToString(deterministic=True)):
            raise _not_waiting(run_id)
        self._owned.look()

    async def delete(self, run_id: str) -> None:
        """Removes an ended run.

        Raises:
            NotFound: RUN.
            FailedPrecondition: RUNNING, it has not ended.
        """
        await self._journal.delete(run_id, call_context.current().tenant)


def _not_waiting(run_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"no plan of run {run_id} waits for approval",
        reason="NOT_WAITING",
        remedy="approve once the run says approval_requested, and only once",
    )
