"""Converts items of batches to runs, and ended runs to outcomes of items."""

import time

from protos.hugginggpt.v1.batch_pb2 import BatchItem
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, Caller
from protos.hugginggpt.v1.model_pb2 import SELECTION_POLICY_RANK
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, BatchPosition, Run, RunSpec
from services.orchestrator.journal.batch_rows import BatchRow, Item
from services.orchestrator.journal.row_writers import Inserts
from services.orchestrator.journal.statements import BATCH_RUNS
from services.orchestrator.pipelines.parameters import final_tasks, output_name


def spec_of(batch: BatchRow, item: Item) -> RunSpec:
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


def position_of(batch: BatchRow, item: Item) -> BatchPosition:
    """Position of an item's run in its batch."""
    return BatchPosition(batch_id=batch.id, index=item.index, name=item.name)


def caller_of(batch: BatchRow) -> Caller:
    """The caller on whose behalf the items run, at batch priority."""
    caller = Caller()
    caller.CopyFrom(batch.caller)
    caller.priority = PRIORITY_BATCH
    return caller


def item_result_rows(run: Run) -> Inserts:
    """The row of the item whose run has ended; none for other runs."""
    position = run.batch
    if not position.index:
        return ()
    item = BatchItem(usage=run.usage, failure=run.failure if run.HasField("failure") else None)
    last = final_tasks(status.task for status in run.tasks)
    for status in run.tasks:
        if status.task.id in last:
            for output, value in status.result.outputs.items():
                item.outputs[output_name(last, status.task.id, output)].CopyFrom(value)
    row = (position.batch_id, position.index, run.run_id, run.state, time.time(), item.SerializeToString())
    return [(BATCH_RUNS, [row])]
