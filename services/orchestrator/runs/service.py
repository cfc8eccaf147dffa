"""Runs of callers: creates, watches, reads, cancels, approves and deletes them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, Self

import grpc
import structlog

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.gateway_pb2 import ApproveRunRequest, CancelRunRequest
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
from services.common.channel import dial
from services.common.errors import FailedPrecondition
from services.orchestrator.journal import Journal
from services.orchestrator.journal.runs import EndedRun, NewRun, RunRow
from services.orchestrator.leases import LeaseManager, stopping_error
from services.orchestrator.notifier import ChangeNotifier
from services.orchestrator.runs import new_run
from services.orchestrator.runs.history import read_events_after, read_state
from services.orchestrator.runs.lease_source import ClaimedRun
from services.orchestrator.runs.planner_client import PlannerClient
from services.orchestrator.runs.run_limiter import RunLimiter
from services.orchestrator.runs.run_log import RunLog

log = structlog.get_logger(__name__)

FORWARD_SECONDS = 2.0
"""Timeout of a forwarded command."""

_MAX_SEQUENCE = 2**53
"""Larger than the number of any event."""


class PipelineSource(Protocol):
    """Stored pipelines, for runs that name one."""

    async def apply_to_run(self, spec: RunSpec) -> Caller:
        """Copies the pipeline that a run names into its spec; returns the caller with the pipeline's data policy.

        Raises:
            ServiceError: the pipeline does not exist or cannot run, or the run's inputs do not fit it.
        """


class CommandForwarder:
    """Sends commands to the orchestrators that own the runs; without it they find the commands later, in the journal.

    Args:
        address: this orchestrator's own address.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    async def cancel(self, run_id: str, address: str) -> None:
        """Sends a cancel command to the owner at an address; if that fails, the owner finds it in the journal."""
        if address in ("", self._address):
            return
        async with dial(address) as channel:  # opened for one call: such calls are rare, and addresses change
            request = CancelRunRequest(run_id=run_id)
            try:
                await OrchestratorServiceStub(channel).CancelRun(
                    request, timeout=FORWARD_SECONDS, metadata=call_context.metadata()
                )
            except grpc.aio.AioRpcError as error:
                log.info("cancel command not forwarded", run_id=run_id, code=error.code().name)


class RunService:
    """Runs of callers.

    Args:
        journal: stores the runs.
        leases: executes the runs of this process.
        limiter: limits the runs of this process.
        notifier: notifies watchers of changes in the journal.
        planner: checks supplied plans.
        pipelines: stored pipelines.
        forwarder: sends commands to the orchestrators that own the runs.
        run_seconds: longest run time.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        leases: LeaseManager[ClaimedRun, RunLog],
        limiter: RunLimiter,
        notifier: ChangeNotifier,
        planner: PlannerClient,
        pipelines: PipelineSource,
        forwarder: CommandForwarder,
        run_seconds: float,
    ) -> None:
        self._journal = journal
        self._leases = leases
        self._limiter = limiter
        self._notifier = notifier
        self._planner = planner
        self._pipelines = pipelines
        self._forwarder = forwarder
        self._run_seconds = run_seconds

    async def __aenter__(self) -> Self:
        await self._leases.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release_all()

    async def release_all(self) -> None:
        """Releases all runs, for other orchestrators to claim at once; watchers get an error and retry."""
        self._leases.close()
        await self._limiter.wait_written()
        await self._leases.release_all()

    @property
    def is_closed(self) -> bool:
        """Whether this process stops and accepts no runs."""
        return self._leases.is_closed

    async def create(self, spec: RunSpec, position: BatchPosition | None = None) -> str:
        """Stores a run and starts it; returns its ID, or that of the earlier run with the same idempotency key.

        Args:
            spec: the request.
            position: position in a batch, for the run that plans it.

        Raises:
            InvalidRequest: the request is empty, the supplied plan is invalid, or the inputs do not fit the pipeline.
            Overloaded: too many runs are active.
            AlreadyExists: IDEMPOTENCY, the key was used for another request.
            NotFound: RUN, the parent does not exist; or PIPELINE.
            FailedPrecondition: TASK_UNAVAILABLE, a task or pinned model of the pipeline is no longer offered.
            Unavailable: the journal or, for a supplied plan, the planner is unavailable; or this process stops.
        """
        new_run.validate(spec)
        if self.is_closed:
            raise stopping_error()
        with self._limiter.admit(call_context.current().tenant, spec.ByteSize()):
            return await self._create(spec, position)

    async def _create(self, spec: RunSpec, position: BatchPosition | None) -> str:
        caller = call_context.current()
        digest = new_run.request_digest(spec, caller)
        parent = await self._journal.row(spec.parent_run_id, caller.tenant) if spec.parent_run_id else None
        if spec.HasField("pipeline"):
            caller = await self._pipelines.apply_to_run(spec)
        elif spec.HasField("plan"):
            spec.plan.CopyFrom(await self._planner.check(new_run.plan_check_request(spec, spec.plan)))
        caller = new_run.with_parent_policy(caller, parent)
        new = new_run.build(spec, caller, parent, digest, self._run_seconds, batch=position)
        write = self._limiter.track_write(self._journal.accept(new))
        write.add_done_callback(partial(self._start_stored, new))
        try:
            return await asyncio.shield(write)  # a caller that disconnects now does not undo the write
        except asyncio.CancelledError:
            if spec.on_disconnect == ON_DISCONNECT_CANCEL and not self.is_closed:
                write.add_done_callback(partial(self._cancel_stored, new.id))
            raise

    def _start_stored(self, new: NewRun, write: "asyncio.Future[str]") -> None:
        if not write.exception() and write.result() == new.id:
            self.start(new)

    def start(self, new: NewRun, on_release: Callable[[RunLog], None] | None = None) -> None:
        """Executes a run that was just stored; `on_release` is called when this process no longer executes it."""
        self._leases.start(RunLog(self._journal, new.id, 1, new.caller, [new.first]), on_release)

    async def wait_until_ended(self, run_id: str) -> None:
        """Waits until a run of the caller has ended, whichever orchestrator executes it.

        Raises:
            NotFound: RUN.
            Unavailable: this process stops, or the journal is unavailable.
        """
        with self._notifier.subscribed(run_id) as changed:
            while not self.is_closed:
                changed.clear()
                if run := self.active_run(run_id):
                    await self._leases.wait_released(run)
                    if run.feed.has_ended:
                        return
                if (await self._journal.row(run_id, call_context.current().tenant)).has_ended:
                    return
                await changed.wait()
        raise stopping_error()

    def _cancel_stored(self, run_id: str, _: "asyncio.Future[str]") -> None:
        if run := self._leases.active.get(run_id):
            run.cancel()

    async def watch(self, run_id: str, after: int) -> AsyncGenerator[RunEvent]:
        """Events numbered above `after`, to the run's end, whichever orchestrator executes it.

        Raises:
            NotFound: RUN.
            Unavailable: this process stops, or the journal is unavailable; watch again.
        """
        after, ended, tenant = min(max(after, 0), _MAX_SEQUENCE), False, call_context.current().tenant
        with self._notifier.subscribed(run_id) as changed:
            while not ended:
                changed.clear()
                stream = self._active_events(run_id, after) or read_events_after(run_id, after, tenant, self._journal)
                async with aclosing(stream) as events:
                    async for event in events:
                        yield event
                        after, ended = event.sequence, event.HasField("run_ended")
                if ended or (run_id not in self._leases.active and await self._is_complete(run_id, after)):
                    return
                if self.is_closed:
                    raise stopping_error()
                await changed.wait()

    def _active_events(self, run_id: str, after: int) -> AsyncGenerator[RunEvent] | None:
        run = self.active_run(run_id)
        return run.feed.after(after) if run else None

    def active_run(self, run_id: str) -> RunLog | None:
        """The caller's run, if this process executes it."""
        run = self._leases.active.get(run_id)
        return run if run and run.caller.tenant == call_context.current().tenant else None

    async def _is_complete(self, run_id: str, after: int) -> bool:
        """Whether `after` is the last event of an ended run."""
        row = await self._journal.row(run_id, call_context.current().tenant)
        return row.has_ended and after >= row.last_sequence

    async def get(self, run_id: str) -> Run:
        """The state of a run; QUEUED once its plan is approved but no slot is free.

        If its events cannot be read, only its state and how it ended are returned.

        Raises:
            NotFound: RUN.
        """
        stored = await self._journal.stored_run(run_id, call_context.current().tenant)
        active = self.active_run(run_id)
        run = (active and active.state_at(stored.row)) or await read_state(stored, self._journal)
        if run.state == RUN_STATE_AWAITING_APPROVAL and await self._journal.has_command(run_id):
            run.state = RUN_STATE_QUEUED
        return run

    async def row(self, run_id: str) -> RunRow:
        """The journal row of a run of the caller.

        Raises:
            NotFound: RUN.
        """
        return await self._journal.row(run_id, call_context.current().tenant)

    async def list(self, **filters: Any) -> Sequence[RunRow]:
        """Runs of the caller, newest first; filters are those of Journal.rows()."""
        return await self._journal.rows(call_context.current().tenant, **filters)

    async def ended(self, since: float, after: tuple[float, str], limit: int) -> Sequence[EndedRun]:
        """Runs of all tenants that ended at or after `since`, in seconds since the epoch, after an (ended, ID)."""
        return await self._journal.ended(since, after, limit)

    async def cancel(self, run_id: str) -> None:
        """Cancels a run, and stores the command; immediately if this process executes it, even without a journal.

        Raises:
            NotFound: RUN.
            Unavailable: the command is not stored.
        """
        if run := self.active_run(run_id):
            run.cancel()
        row = await self._journal.row(run_id, call_context.current().tenant)
        if row.has_ended:
            return
        await self._journal.cancel(run_id)
        if run := self.active_run(run_id):  # it may have been claimed here meanwhile
            run.cancel()
        else:
            await self._forwarder.cancel(run_id, row.owner_address)

    async def approve(self, run_id: str, plan: Plan | None) -> None:
        """Approves the waiting plan, or another in its place; it executes as soon as a slot is free.

        Raises:
            NotFound: RUN.
            FailedPrecondition: NOT_WAITING, no plan waits for approval, or it was approved already.
            InvalidRequest: the other plan is invalid, or exceeds the run's budget.
        """
        row = await self._journal.row(run_id, call_context.current().tenant)
        if row.state != RUN_STATE_AWAITING_APPROVAL:
            raise _not_waiting(run_id)
        approved = ApproveRunRequest(run_id=run_id)
        if plan:
            spec = (await self._journal.events(run_id, 0, 1))[0].run_accepted.spec
            spec.plan.CopyFrom(plan)
            new_run.validate(spec)
            approved.plan.CopyFrom(await self._planner.check(new_run.plan_check_request(spec, plan)))
        if not await self._journal.approve(run_id, approved.SerializeToString(deterministic=True)):
            raise _not_waiting(run_id)
        self._leases.claim_now()

    async def delete(self, run_id: str) -> None:
        """Deletes an ended run.

        Raises:
            NotFound: RUN.
            FailedPrecondition: RUNNING, it has not ended.
        """
        await self._journal.delete(run_id, call_context.current().tenant)


def _not_waiting(run_id: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"run {run_id} has no plan that waits for approval",
        reason="NOT_WAITING",
        remedy="approve once, after the event approval_requested",
    )
