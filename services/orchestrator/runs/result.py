"""How a run ends, given what became of its tasks and what the planner had to say."""

import time
from collections.abc import Collection, Iterable

from google.protobuf.duration_pb2 import Duration

from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import NOTE_KIND_CHAT, NOTE_KIND_CLARIFY, NOTE_KIND_UNMAPPED, Decision
from protos.hugginggpt.v1.run_pb2 import (
    RUN_MODE_PLAN,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    TASK_STATE_REUSED,
    TASK_STATE_SUCCEEDED,
    Run,
    RunState,
)
from protos.hugginggpt.v1.usage_pb2 import Usage

_GOOD = frozenset({TASK_STATE_SUCCEEDED, TASK_STATE_REUSED})
_MISSING = frozenset({NOTE_KIND_UNMAPPED, NOTE_KIND_CLARIFY})


def outcome(
    run: Run, failure: Failure | None = None, replaced: Collection[int] = ()
) -> "tuple[RunState.ValueType, Failure | None]":
    """The state a run ends in and what is wrong with it.

    Args:
        run: as it stands, its tasks all ended; where only a plan was asked for, its tasks are what is usable.
        failure: what is wrong with the run as a whole, such as a deadline.
        replaced: ids of failed tasks whose results came about in another way.
    """
    wrong = failure or _worst(run, replaced)
    if wrong is None:
        return RUN_STATE_COMPLETED, None
    planned_only = run.spec.mode == RUN_MODE_PLAN
    usable = any(planned_only or status.state in _GOOD for status in run.tasks)
    return (RUN_STATE_INCOMPLETE if usable else RUN_STATE_FAILED), wrong


def spent(run: Run, decided: Iterable[Decision], lost: Iterable[Usage]) -> Usage:
    """What the run's tasks, attempts at them that failed and decisions took together, and how long it was under way."""
    total = Usage(elapsed=Duration(), busy=Duration())
    usages = [*(status.result.usage for status in run.tasks), *(decision.usage for decision in decided), *lost]
    total.busy.FromNanoseconds(sum(usage.busy.ToNanoseconds() for usage in usages))
    total.elapsed.FromNanoseconds(max(0, time.time_ns() - run.create_time.ToNanoseconds()))
    total.input_tokens = sum(usage.input_tokens for usage in usages)
    total.output_tokens = sum(usage.output_tokens for usage in usages)
    total.cost = sum(usage.cost for usage in usages)
    for usage in usages:
        for pool, seconds in usage.pool_seconds.items():
            total.pool_seconds[pool] += seconds
    return total


def _worst(run: Run, replaced: Collection[int]) -> Failure | None:
    for status in run.tasks:
        if (
            status.state not in _GOOD
            and status.task.id not in replaced
            and status.result.HasField("failure")
            and status.result.failure.reason != "SKIPPED"
        ):
            return status.result.failure
    missing = [note for note in run.notes if note.kind in _MISSING]
    if missing:
        return Failure(
            reason="CLARIFY" if missing[0].kind == NOTE_KIND_CLARIFY else "UNPLANNABLE",
            code="INVALID_ARGUMENT" if missing[0].kind == NOTE_KIND_CLARIFY else "UNIMPLEMENTED",
            message=" ".join(note.text for note in missing),
            remedy="say what is missing and ask again, or see `hugginggpt tasks` for what can be done",
        )
    if not run.tasks and not any(note.kind == NOTE_KIND_CHAT for note in run.notes):
        return Failure(
            reason="UNPLANNABLE",
            code="UNIMPLEMENTED",
            message="the planner found nothing to do in this request",
            remedy="say what should be done with what, or see `hugginggpt tasks` for what can be done",
        )
    return None
