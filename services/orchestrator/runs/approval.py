"""Approval of plans: the run is parked without an owner, and its deadline is extended by the time it waits."""

import time

from google.rpc import code_pb2

from protos.hugginggpt.v1.event_pb2 import ApprovalRequested, PlanApproved, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import ApproveRunRequest
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_APPROVE, RUN_MODE_PLAN, RUN_STATE_AWAITING_APPROVAL
from services.orchestrator.runs.run_log import RunLog

WAITING_SECONDS = 24 * 3600.0
"""How long a plan waits for approval."""

_EXPIRED = Failure(
    reason="EXPIRED",
    code=code_pb2.CANCELLED,
    message="the plan was not approved in time",
    remedy="send the request again, and approve the plan within a day",
)


def is_plan_only(run: RunLog) -> bool:
    """Whether the run must not execute tasks, or not before its approval."""
    mode = run.fold.run.spec.mode
    return mode == RUN_MODE_PLAN or (mode == RUN_MODE_APPROVE and not run.fold.is_approved)


def needs_approval(run: RunLog, failure: Failure | None) -> bool:
    """Whether the run has a plan that must be approved before it executes."""
    unapproved = run.fold.run.spec.mode == RUN_MODE_APPROVE and not run.fold.is_approved
    return unapproved and failure is None and not run.cancel_reason and bool(run.fold.run.tasks)


def request_approval(run: RunLog) -> None:
    """Emits approval_requested, which parks the run."""
    event = RunEvent(approval_requested=ApprovalRequested())
    event.approval_requested.expire_time.FromMicroseconds(int((time.time() + WAITING_SECONDS) * 1e6))
    run.emit(event)


def is_awaited(run: RunLog) -> bool:
    """Whether the run is parked until its approval."""
    return run.fold.run.state == RUN_STATE_AWAITING_APPROVAL


def apply_decision(run: RunLog) -> None:
    """Lets an approved plan execute; cancels the run if nobody approved it in time."""
    if run.approval is None:
        run.cancel(_EXPIRED)
        return
    approval = ApproveRunRequest.FromString(run.approval)
    event = RunEvent(plan_approved=PlanApproved())
    if approval.HasField("plan"):
        event.plan_approved.plan.CopyFrom(approval.plan)
    waited = time.time_ns() - run.fold.approval_requested_at
    event.plan_approved.deadline.FromNanoseconds(run.fold.run.deadline.ToNanoseconds() + waited)
    run.caller.deadline.CopyFrom(event.plan_approved.deadline)
    run.emit(event)
