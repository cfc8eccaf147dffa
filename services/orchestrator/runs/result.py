"""Results of a run: names of its artifacts, final state, failure, usage, and the outcome of its batch item."""

import time
from collections.abc import Collection, Iterable
from itertools import count
from pathlib import PurePath

from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2

from protos.hugginggpt.v1.batch_pb2 import BatchItem
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
    TaskResult,
)
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.orchestrator.journal.batch_items import outcome_rows
from services.orchestrator.journal.store import Inserts
from services.orchestrator.runs.arguments import final_tasks, output_name

_GOOD = frozenset({TASK_STATE_SUCCEEDED, TASK_STATE_REUSED})
_MISSING = frozenset({NOTE_KIND_UNMAPPED, NOTE_KIND_CLARIFY})


def rename_duplicates(result: TaskResult, earlier: Iterable[TaskResult]) -> None:
    """Numbers the artifacts of a result whose names earlier results of the run have, such as speech-2.wav."""
    artifacts = [output.artifact for _, output in sorted(result.outputs.items()) if output.HasField("artifact")]
    if not artifacts:
        return
    used = {output.artifact.name for other in earlier for output in other.outputs.values()} - {""}
    for artifact in artifacts:
        if artifact.name and artifact.name in used:
            path = PurePath(artifact.name)
            numbered = (f"{path.stem}-{number}{path.suffix}" for number in count(2))
            artifact.name = next(name for name in numbered if name not in used)
        used.add(artifact.name)


def final_state(
    run: Run, failure: Failure | None = None, replaced: Collection[int] = ()
) -> "tuple[RunState.ValueType, Failure | None]":
    """The final state of a run and its failure.

    Args:
        run: with all tasks ended; in plan mode, planned tasks count as usable results.
        failure: of the run as a whole, such as a passed deadline.
        replaced: IDs of failed tasks whose results were obtained by other tasks.
    """
    final_failure = failure or _first_failure(run, replaced)
    if final_failure is None:
        return RUN_STATE_COMPLETED, None
    planned_only = run.spec.mode == RUN_MODE_PLAN
    usable = any(planned_only or status.state in _GOOD for status in run.tasks)
    return (RUN_STATE_INCOMPLETE if usable else RUN_STATE_FAILED), final_failure


def total_usage(run: Run, decisions: Iterable[Decision], failed_usage: Iterable[Usage]) -> Usage:
    """Total usage of the run's tasks, failed attempts and decisions, with the time since its creation."""
    total = Usage(elapsed=Duration(), busy=Duration())
    usages = [
        *(status.result.usage for status in run.tasks),
        *(decision.usage for decision in decisions),
        *failed_usage,
    ]
    total.busy.FromNanoseconds(sum(usage.busy.ToNanoseconds() for usage in usages))
    total.elapsed.FromNanoseconds(max(0, time.time_ns() - run.create_time.ToNanoseconds()))
    total.input_tokens = sum(usage.input_tokens for usage in usages)
    total.output_tokens = sum(usage.output_tokens for usage in usages)
    total.cost = sum(usage.cost for usage in usages)
    for usage in usages:
        for pool, seconds in usage.pool_seconds.items():
            total.pool_seconds[pool] += seconds
    return total


def item_result_rows(run: Run) -> Inserts:
    """The row with the outcome of the batch item whose run has ended; none for other runs."""
    position = run.batch
    if not position.index:
        return ()
    item = BatchItem(usage=run.usage, failure=run.failure if run.HasField("failure") else None)
    final = final_tasks(status.task for status in run.tasks)
    for status in run.tasks:
        if status.task.id in final:
            for output, value in status.result.outputs.items():
                item.outputs[output_name(final, status.task.id, output)].CopyFrom(value)
    return outcome_rows(position.batch_id, position.index, run.run_id, run.state, item)


def _first_failure(run: Run, replaced: Collection[int]) -> Failure | None:
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
            code=code_pb2.INVALID_ARGUMENT if missing[0].kind == NOTE_KIND_CLARIFY else code_pb2.UNIMPLEMENTED,
            message=" ".join(note.text for note in missing),
            remedy="add what is missing and send the request again, or see `hugginggpt tasks` for the available tasks",
        )
    if not run.tasks and not any(note.kind == NOTE_KIND_CHAT for note in run.notes):
        return Failure(
            reason="UNPLANNABLE",
            code=code_pb2.UNIMPLEMENTED,
            message="the planner found no task in this request",
            remedy="describe what to do with which input, or see `hugginggpt tasks` for the available tasks",
        )
    return None
