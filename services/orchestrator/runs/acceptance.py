"""From what a caller wants to a run that can be kept: what is refused, and what the row and first event say."""

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
from services.orchestrator.journal.tables import NewRun, Row
from services.orchestrator.runs import spans
from services.orchestrator.runs.arguments import is_too_long

REQUEST_IN_LISTS = 200
"""Characters of the request that a list of runs shows."""


def check(spec: RunSpec) -> None:
    """Refuses what cannot become a run.

    Raises:
        InvalidRequest: there is nothing to do, two inputs have one name, a budget cannot be kept, or TOO_LARGE.
    """
    if spec.HasField("pipeline") and spec.HasField("plan"):
        raise InvalidRequest("there is a pipeline and a plan", port="pipeline", remedy="send one of them")
    if not spec.request.strip() and not spec.plan.tasks and not spec.HasField("pipeline"):
        raise InvalidRequest(
            "the request is empty",
            reason="EMPTY",
            remedy="say what should be done, supply a plan, or name a pipeline",
            port="request",
        )
    names = Counter(item.name for item in spec.inputs)
    if twice := [name for name, count in names.items() if count > 1 or not name]:
        raise InvalidRequest(
            f"inputs need names of their own; these have not: {sorted(twice)}", remedy="rename them", port="inputs"
        )
    if 0 < spec.budget.tasks < len(spec.plan.tasks):
        raise InvalidRequest(
            f"the plan has {len(spec.plan.tasks)} tasks, the budget allows {spec.budget.tasks}",
            reason="BUDGET",
            remedy="give the run more (budget.tasks), or supply a smaller plan",
            port="budget",
        )
    for name, value in _sent(spec):
        if is_too_long(value):
            raise InvalidRequest(
                f"{name} has {value.ByteSize() // 1024} KiB inline, where more than 256 are to be an artifact",
                reason="TOO_LARGE",
                remedy="send it as a file, and name the artifact",
                port=name,
            )


def plan_to_check(spec: RunSpec, plan: Plan) -> planner_pb2.PlanRequest:
    """Asks the planner whether a plan is valid for a run."""
    draft = planner_pb2.PlanGoal(check=planner_pb2.CheckPlan(draft=plan))
    return planner_pb2.PlanRequest(inputs=spec.inputs, goal=draft, budget=spec.budget)


def digest(spec: RunSpec, who: Caller) -> str:
    """Same digest, same request: SHA-256 over the spec and its data policy."""
    bare = RunSpec()
    bare.CopyFrom(spec)
    bare.ClearField("idempotency_key")
    return hashlib.sha256(bare.SerializeToString(deterministic=True) + b"%d" % who.policy).hexdigest()


def bound(who: Caller, parent: Row | None) -> Caller:
    """The caller, as the run is done for: what follows on a run that keeps its data in keeps it in, too."""
    if parent is None or parent.caller.policy == DATA_POLICY_OPEN:
        return who
    kept_in = Caller()
    kept_in.CopyFrom(who)
    kept_in.policy = DATA_POLICY_LOCAL
    return kept_in


def new_run(
    spec: RunSpec,
    who: Caller,
    parent: Row | None,
    asked: str,
    run_seconds: float,
    *,
    batch: BatchPosition | None = None,
) -> NewRun:
    """A run with its id, deadline and first event.

    Args:
        spec: what it is asked to do.
        who: on whose behalf.
        parent: the run it continues.
        asked: digest of what the caller sent.
        run_seconds: most time it can have.
        batch: position in a batch.
    """
    now = time.time()
    run_id = f"run_{int(now * 1000):011x}{secrets.token_hex(8)}"
    wanted = spec.budget.wall_time.seconds + spec.budget.wall_time.nanos / 1e9
    deadline = now + (min(wanted, run_seconds) if wanted > 0 else run_seconds)
    kept = Caller()
    kept.CopyFrom(who)
    kept.run_id = run_id
    kept.deadline.FromMicroseconds(int(deadline * 1e6))
    conversation = parent.conversation_id if parent else run_id
    accepted = RunAccepted(
        spec=spec,
        deadline=kept.deadline,
        conversation_id=conversation,
        caller=_told(who),
        trace=spans.begun(in_batch=batch is not None),
        batch=batch,
    )
    first = RunEvent(run_id=run_id, sequence=1, run_accepted=accepted)
    first.time.FromMicroseconds(int(now * 1e6))
    return NewRun(
        id=run_id,
        conversation_id=conversation,
        parent_id=parent.id if parent else "",
        request=_called(spec, batch)[:REQUEST_IN_LISTS],
        deadline=deadline,
        caller=kept,
        idempotency_key=spec.idempotency_key,
        digest=asked,
        first=first,
        batch=batch or BatchPosition(),
    )


def _called(spec: RunSpec, batch: BatchPosition | None) -> str:
    """What a list of runs says of one that was asked for without words: which item it is, or of which pipeline."""
    return spec.request or (batch.name if batch else "") or spec.pipeline.name


def _told(who: Caller) -> Caller:
    """What of the caller stands in the record."""
    return Caller(
        tenant=who.tenant, key_id=who.key_id, policy=who.policy, priority=who.priority, request_id=who.request_id
    )


def _sent(spec: RunSpec) -> Iterator[tuple[str, Value]]:
    """What came inline, under the name of its input or port, or as parameters."""
    for item in spec.inputs:
        yield item.name, item.value
    for task in spec.plan.tasks:
        yield "parameters", Value(json=task.parameters_json)
        for port, argument in task.arguments.items():
            for one in argument.list.items if argument.HasField("list") else (argument,):
                yield port, one.value
