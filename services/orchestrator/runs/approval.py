"""Plans that wait for somebody's word: the run is let go of, its deadline stands still, until it is taken up again."""

import time

from protos.hugginggpt.v1.event_pb2 import ApprovalRequested, PlanApproved, RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import ApproveRunRequest
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_APPROVE, RUN_MODE_PLAN, RUN_STATE_AWAITING_APPROVAL
from services.orchestrator.runs.run_log import LiveRun

WAITING_SECONDS = 24 * 3600.0
"""How long a plan waits."""

_EXPIRED = Failure(
    reason="EXPIRED",
    code="CANCELLED",
    message="nobody approved the plan in time",
    remedy="ask again, and approve the plan within a day",
)


def only_plans(run: LiveRun) -> bool:
    """Whether nothing may run, or not yet."""
    mode = run.view.run.spec.mode
    return mode == RUN_MODE_PLAN or (mode == RUN_MODE_APPROVE and not run.view.approved)


def is_due(run: LiveRun, failure: Failure | None) -> bool:
    """Whether there is a plan that must wait for its approval."""
    asks = run.view.run.spec.mode == RUN_MODE_APPROVE and not run.view.approved
    return asks and failure is None and not run.cancelled and bool(run.view.run.tasks)


def ask(run: LiveRun) -> None:
    """Tells that the plan waits; with that the run is let go of."""
    event = RunEvent(approval_requested=ApprovalRequested())
    event.approval_requested.expire_time.FromMicroseconds(int((time.time() + WAITING_SECONDS) * 1e6))
    run.emit(event)


def is_awaited(run: LiveRun) -> bool:
    """Whether the run was let go of to wait for its approval."""
    return run.view.run.state == RUN_STATE_AWAITING_APPROVAL


def take(run: LiveRun) -> None:
    """Lets the plan run if somebody approved it; otherwise the run is cancelled."""
    if run.approval is None:
        run.cancel(_EXPIRED)
        return
    asked = ApproveRunRequest.FromString(run.approval)
    event = RunEvent(plan_approved=PlanApproved())
    if asked.HasField("plan"):
        event.plan_approved.plan.CopyFrom(asked.plan)
    waited = time.time_ns() - run.view.asked_at
    event.plan_approved.deadline.FromNanoseconds(run.view.run.deadline.ToNanoseconds() + waited)
    run.caller.deadline.CopyFrom(event.plan_approved.deadline)
    run.emit(event)
