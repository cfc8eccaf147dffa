"""Items of a batch: pages of them, their runs, what these wait for, and the state of the batch that results."""

from collections.abc import AsyncIterator, Sequence

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, Caller
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.model_pb2 import SELECTION_POLICY_RANK
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef
from protos.hugginggpt.v1.run_pb2 import (
    RUN_MODE_RESULTS,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    TASK_STATE_PLANNED,
    TASK_STATE_RUNNING,
    TASK_STATE_WAITING,
    BatchPosition,
    RunSpec,
    RunState,
)
from services.common import call_context
from services.common.errors import InvalidRequest, to_failure
from services.orchestrator.journal.batch_items import Counts, Item
from services.orchestrator.journal.batches import BatchRow, BatchStore
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.pipelines import parameters
from services.orchestrator.runs import new_run

PAGE, PAGE_BYTES = 100, 1024 * 1024
"""Items and bytes read at a time: each active batch holds that much in memory."""


async def pages(store: BatchStore, batch: BatchRow) -> AsyncIterator[list[Item]]:
    """Items of a batch to run, in order."""
    after = 0
    while page := await store.next_items(batch.id, after, PAGE, PAGE_BYTES, failed_only=batch.failed_only):
        after = page[-1].index
        yield page


def caller_of(batch: BatchRow) -> Caller:
    """The caller on whose behalf the items run, at batch priority."""
    caller = Caller()
    caller.CopyFrom(batch.caller)
    caller.priority = PRIORITY_BATCH
    return caller


def new_runs(batch: BatchRow, page: Sequence[Item], run_seconds: float) -> tuple[list[NewRun], dict[int, Failure]]:
    """Builds the runs of items; returns them, and the failures of invalid items by index.

    Args:
        batch: the batch; it is planned.
        page: some of its items.
        run_seconds: longest run time of an item.
    """
    runs: list[NewRun] = []
    invalid: dict[int, Failure] = {}
    caller = call_context.current()
    for item in page:
        if item.failure:
            invalid[item.index] = item.failure
            continue
        try:
            parameters.check(batch.pipeline.inputs, item.inputs)
        except InvalidRequest as error:
            invalid[item.index] = to_failure(error)
        else:
            position = BatchPosition(batch_id=batch.id, index=item.index, name=item.name)
            runs.append(new_run.build(_spec(batch, item), caller, None, "", run_seconds, batch=position))
    return runs, invalid


def waiting_reason(fold: RunFold) -> str:
    """Why an item's run makes no progress: its tasks wait for a model, an expert or a retry; empty if one executes."""
    reason = ""
    for status in fold.run.tasks:
        if status.state == TASK_STATE_WAITING:
            reason = reason or fold.waiting_reasons[status.task.id]
        elif status.state == TASK_STATE_PLANNED and not status.HasField("candidate"):
            reason = reason or f"no model has been selected for {status.task.task} yet"
        elif status.state == TASK_STATE_RUNNING:
            if not status.result.HasField("failure"):
                return ""
            reason = reason or status.result.failure.message
    return reason


def final_state(counts: Counts, total: int) -> "RunState.ValueType":
    """The state of a batch of which no more items run.

    Args:
        counts: of its items by state.
        total: number of its items.
    """
    if counts[RUN_STATE_COMPLETED] == total:
        return RUN_STATE_COMPLETED
    started = sum(counts.by_state.values()) - counts[RUN_STATE_QUEUED]
    if started < total or counts[RUN_STATE_CANCELLED]:
        return RUN_STATE_CANCELLED
    usable = counts[RUN_STATE_COMPLETED] + counts[RUN_STATE_INCOMPLETE]
    return RUN_STATE_INCOMPLETE if usable else RUN_STATE_FAILED


def _spec(batch: BatchRow, item: Item) -> RunSpec:
    """The request of an item's run."""
    batch_spec, pipeline = batch.spec, batch.pipeline
    return RunSpec(
        request=batch_spec.request,
        inputs=item.inputs,
        plan=pipeline.plan,
        pipeline=PipelineRef(name=pipeline.name, version=pipeline.version) if pipeline.name else None,
        mode=RUN_MODE_RESULTS,
        inference_mode=batch_spec.inference_mode,
        selection_policy=SELECTION_POLICY_RANK,
        budget=batch_spec.budget,
        bypass_memo=batch_spec.bypass_memo,
        constraints=batch_spec.constraints,
        metadata=batch_spec.metadata,
    )
