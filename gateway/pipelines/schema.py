"""JSON Schemas of batch and pipeline bodies that are not plain proto messages."""

from typing import Any

from gateway.openapi.schemas import INPUT_SUFFIX, event_stream, list_schema, reference, schemas
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem, BatchSpec, NewItem
from protos.hugginggpt.v1.gateway_pb2 import SavePipelineRequest
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_SECONDS_OR_NULL = {"type": ["number", "null"]}
_COST = {"type": "number", "minimum": 0, "description": "In the currency of the deployment's price table."}

RESPONSE_MESSAGES = (Pipeline.DESCRIPTOR, Batch.DESCRIPTOR, BatchItem.DESCRIPTOR)
"""Response messages that are encoded without changes."""


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


OWN_SCHEMAS = {
    "PipelineList": list_schema(reference("Pipeline"), next_page_token=_TEXT),
    "BatchList": list_schema(reference("Batch"), next_page_token=_TEXT),
    "BatchItemList": list_schema(reference("BatchItem"), next_page_token=_TEXT),
    "BatchResult": _RESULT,
    "BatchResults": {"type": "array", "items": reference("BatchResult"), "description": "One result per line."},
    "BatchLines": {
        "type": "array",
        "prefixItems": [reference("BatchSpec" + INPUT_SUFFIX)],
        "items": reference("NewItem" + INPUT_SUFFIX),
        "minItems": 2,
        "description": "One JSON value per line: the batch, then its items.",
    },
    "BatchSummary": _SUMMARY,
    "BatchEvents": event_stream("Batch", "Only the last one has it."),
}


def input_schemas() -> dict[str, Any]:
    """Returns the schemas of request bodies by name."""
    found = schemas([SavePipelineRequest.DESCRIPTOR, BatchSpec.DESCRIPTOR, NewItem.DESCRIPTOR], as_input=True)
    del found["SavePipelineRequest" + INPUT_SUFFIX]["properties"]["name"]
    spec = found["BatchSpec" + INPUT_SUFFIX]
    items = {"type": "array", "items": reference("NewItem" + INPUT_SUFFIX)}
    return {**found, "BatchRequest": {**spec, "properties": {**spec["properties"], "items": items}}}
