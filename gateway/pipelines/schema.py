"""What batches and pipelines look like in JSON, where the protos do not say."""

from typing import Any

from gateway.openapi.schemas import TAKEN, event_stream, listed, reference, schemas
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem, BatchSpec, NewItem
from protos.hugginggpt.v1.gateway_pb2 import SavePipelineRequest
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_SECONDS_OR_NULL = {"type": ["number", "null"]}
_COST = {"type": "number", "minimum": 0, "description": "In the currency of the deployment's price table."}

SENT = (Pipeline.DESCRIPTOR, Batch.DESCRIPTOR, BatchItem.DESCRIPTOR)
"""Messages that are told as they are."""


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


_RESULT = _object(
    index={"type": "integer", "minimum": 1},
    name=_TEXT,
    state=_TEXT,
    run_id=_TEXT_OR_NULL,
    outputs={"type": "object"},
    error={"anyOf": [_object(reason=_TEXT, message=_TEXT, remedy=_TEXT), {"type": "null"}]},
    seconds=_SECONDS_OR_NULL,
    input_tokens=_COUNT,
    output_tokens=_COUNT,
    cost=_COST,
)
_SUMMARY = _object(
    batch_id=_TEXT,
    state=_TEXT,
    counts=reference("BatchCounts"),
    seconds=_object(total={"type": "number"}, median={"type": "number"}, p95={"type": "number"}),
    input_tokens=_COUNT,
    output_tokens=_COUNT,
    cost=_COST,
    pool_seconds={"type": "object", "additionalProperties": {"type": "number"}},
    slowest={"type": "array", "items": _object(index=_COUNT, name=_TEXT, seconds={"type": "number"})},
    errors={
        "type": "array",
        "items": _object(reason=_TEXT, message=_TEXT, count=_COUNT, names={"type": "array", "items": _TEXT}),
    },
)


OWN = {
    "PipelineList": listed(reference("Pipeline"), next_page_token=_TEXT),
    "BatchList": listed(reference("Batch"), next_page_token=_TEXT),
    "BatchItemList": listed(reference("BatchItem"), next_page_token=_TEXT),
    "BatchResult": _RESULT,
    "BatchResults": {"type": "array", "items": reference("BatchResult"), "description": "Each of them is a line."},
    "BatchLines": {
        "type": "array",
        "prefixItems": [reference("BatchSpec" + TAKEN)],
        "items": reference("NewItem" + TAKEN),
        "minItems": 2,
        "description": "Each of them is a line.",
    },
    "BatchSummary": _SUMMARY,
    "BatchEvents": event_stream("Batch", "Only the last one has it."),
}


def taken() -> dict[str, Any]:
    """Schemas of what is taken."""
    found = schemas([SavePipelineRequest.DESCRIPTOR, BatchSpec.DESCRIPTOR, NewItem.DESCRIPTOR], taken=True)
    del found["SavePipelineRequest" + TAKEN]["properties"]["name"]
    spec = found["BatchSpec" + TAKEN]
    items = {"type": "array", "items": reference("NewItem" + TAKEN)}
    return {**found, "BatchRequest": {**spec, "properties": {**spec["properties"], "items": items}}}
