"""Validates a run request and builds the row and first event of the new run."""

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import BatchPosition, RunSpec
from services.common.errors import InvalidRequest
from services.orchestrator.inline_values import is_too_large
from services.orchestrator.journal.runs import NewRun, RunRow
from services.orchestrator.runs import spans

REQUEST_IN_LISTS = 200
"""Characters of the request shown in a list of runs."""


def validate(spec: RunSpec) -> None:
    """Checks that a request can become a run.

    Raises:
        InvalidRequest: the request is empty, inputs share a name, the plan exceeds the budget, or a value is TOO_LARGE.
    """
    if spec.HasField("pipeline") and spec.HasField("plan"):
        raise InvalidRequest("the request has a pipeline and a plan", port="pipeline", remedy="send one of them")
    if not spec.request.strip() and not spec.plan.tasks and not spec.HasField("pipeline"):
        raise InvalidRequest(
            "the request is empty",
            reason="EMPTY",
            remedy="describe the work, supply a plan, or name a pipeline",
            port="request",
        )
    names = Counter(item.name for item in spec.inputs)
    if repeated := [name for name, count in names.items() if count > 1 or not name]:
        message = f"the names of inputs must be unique and not empty; these are not: {sorted(repeated)}"
        raise InvalidRequest(message, remedy="rename them", port="inputs")
    if 0 < spec.budget.tasks < len(spec.plan.tasks):
        raise InvalidRequest(
            f"the plan has {len(spec.plan.tasks)} tasks, the budget allows {spec.budget.tasks}",
            reason="BUDGET",
            remedy="raise the budget (budget.tasks), or supply a smaller plan",
            port="budget",
        )
    for name, value in _inline_values(spec):
        if is_too_large(value):
            raise InvalidRequest(
                f"{name} has {value.ByteSize() // 1024} KiB inline; values above 256 KiB must be artifacts",
                reason="TOO_LARGE",
                remedy="upload it as a file and reference the artifact",
                port=name,
            )


def plan_check_request(spec: RunSpec, plan: Plan) -> planner_pb2.PlanRequest:
    """The planner request that checks whether a plan is valid for a run."""
    draft = planner_pb2.PlanGoal(check=planner_pb2.CheckPlan(draft=plan))
    return planner_pb2.PlanRequest(inputs=spec.inputs, goal=draft, budget=spec.budget)


def request_digest(spec: RunSpec, caller: Caller) -> str:
    """SHA-256 of a request and its data policy, without the idempotency key; equal for equal requests."""
    bare = RunSpec()
    bare.CopyFrom(spec)
    bare.ClearField("idempotency_key")
    return hashlib.sha256(bare.SerializeToString(deterministic=True) + b"%d" % caller.policy).hexdigest()


def with_parent_policy(caller: Caller, parent: RunRow | None) -> Caller:
    """The caller, with data policy local unless the parent run's policy is open."""
    if parent is None or parent.caller.policy == DATA_POLICY_OPEN:
        return caller
    local = Caller()
    local.CopyFrom(caller)
    local.policy = DATA_POLICY_LOCAL
    return local


def build(
    spec: RunSpec,
    caller: Caller,
    parent: RunRow | None,
    digest: str,
    run_seconds: float,
    *,
    batch: BatchPosition | None = None,
) -> NewRun:
    """Builds a run with its ID, deadline and first event.

    Args:
        spec: the request.
        caller: on whose behalf it runs.
        parent: the run it continues.
        digest: of the request as sent.
        run_seconds: longest run time.
        batch: position in a batch.
    """
    now = time.time()
    run_id = f"run_{int(now * 1000):011x}{secrets.token_hex(8)}"
    requested = spec.budget.wall_time.seconds + spec.budget.wall_time.nanos / 1e9
    deadline = now + (min(requested, run_seconds) if requested > 0 else run_seconds)
    stored = Caller()
    stored.CopyFrom(caller)
    stored.run_id = run_id
    stored.deadline.FromMicroseconds(int(deadline * 1e6))
    conversation = parent.conversation_id if parent else run_id
    accepted = RunAccepted(
        spec=spec,
        deadline=stored.deadline,
        conversation_id=conversation,
        caller=_public_caller(caller),
        trace=spans.new_trace(in_batch=batch is not None),
        batch=batch,
    )
    first = RunEvent(run_id=run_id, sequence=1, run_accepted=accepted)
    first.time.FromMicroseconds(int(now * 1e6))
    return NewRun(
        id=run_id,
        conversation_id=conversation,
        parent_id=parent.id if parent else "",
        request=_title(spec, batch)[:REQUEST_IN_LISTS],
        deadline=deadline,
        caller=stored,
        idempotency_key=spec.idempotency_key,
        digest=digest,
        first=first,
        batch=batch or BatchPosition(),
    )


def _title(spec: RunSpec, batch: BatchPosition | None) -> str:
    """What a list of runs shows: the request, or the name of the batch item or pipeline."""
    return spec.request or (batch.name if batch else "") or spec.pipeline.name


def _public_caller(caller: Caller) -> Caller:
    """The fields of the caller that the run's record shows."""
    return Caller(
        tenant=caller.tenant,
        key_id=caller.key_id,
        policy=caller.policy,
        priority=caller.priority,
        request_id=caller.request_id,
    )


def _inline_values(spec: RunSpec) -> Iterator[tuple[str, Value]]:
    """Values in the request, each with the name of its input or port, or "parameters"."""
    for item in spec.inputs:
        yield item.name, item.value
    for task in spec.plan.tasks:
        yield "parameters", Value(json=task.parameters_json)
        for port, argument in task.arguments.items():
            for one in argument.list.items if argument.HasField("list") else (argument,):
                yield port, one.value
