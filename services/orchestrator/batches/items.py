"""Converts items of batches to runs."""

from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, Caller
from protos.hugginggpt.v1.model_pb2 import SELECTION_POLICY_RANK
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, BatchPosition, RunSpec
from services.orchestrator.journal.batch_rows import BatchRow, Item


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
