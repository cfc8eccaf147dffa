"""An item of a batch as a run, and a run that has ended as what became of an item."""

import time

from protos.hugginggpt.v1.batch_pb2 import BatchItem
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, Caller
from protos.hugginggpt.v1.model_pb2 import SELECTION_POLICY_RANK
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, BatchPosition, Run, RunSpec
from services.orchestrator.journal.batch_rows import BatchRow, Item
from services.orchestrator.journal.row_writers import Puts
from services.orchestrator.journal.statements import BATCH_RUNS
from services.orchestrator.pipelines.parameters import ends, output_name


def spec_of(batch: BatchRow, item: Item) -> RunSpec:
    """What an item's run is asked to do."""
    asked, pipeline = batch.spec, batch.pipeline
    return RunSpec(
        request=asked.request,
        inputs=item.inputs,
        plan=pipeline.plan,
        pipeline=PipelineRef(name=pipeline.name, version=pipeline.version) if pipeline.name else None,
        mode=RUN_MODE_RESULTS,
        inference_mode=asked.inference_mode,
        selection_policy=SELECTION_POLICY_RANK,
        budget=asked.budget,
        bypass_memo=asked.bypass_memo,
        constraints=asked.constraints,
        metadata=asked.metadata,
    )


def position_of(batch: BatchRow, item: Item) -> BatchPosition:
    """Position of an item's run in its batch."""
    return BatchPosition(batch_id=batch.id, index=item.index, name=item.name)


def caller_of(batch: BatchRow) -> Caller:
    """On whose behalf its items run."""
    who = Caller()
    who.CopyFrom(batch.caller)
    who.priority = PRIORITY_BATCH
    return who


def settled(run: Run) -> Puts:
    """What became of the item whose run has ended; nothing for other runs."""
    place = run.batch
    if not place.index:
        return ()
    item = BatchItem(usage=run.usage, failure=run.failure if run.HasField("failure") else None)
    last = ends(status.task for status in run.tasks)
    for status in run.tasks:
        if status.task.id in last:
            for output, value in status.result.outputs.items():
                item.outputs[output_name(last, status.task.id, output)].CopyFrom(value)
    row = (place.batch_id, place.index, run.run_id, run.state, time.time(), item.SerializeToString())
    return [(BATCH_RUNS, [row])]
