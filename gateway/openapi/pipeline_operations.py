"""Request bodies, responses and examples of the pipeline and batch routes."""

import json
from typing import Any

from gateway.openapi import examples
from gateway.openapi.document import DOWNLOAD, answer
from gateway.openapi.schemas import INPUT_SUFFIX, reference

NAME = "read-aloud"
BATCH_ID = "batch_19a2b3c4d5ea1b2c3d4e5f60718"

_PLAN = [
    {**examples.TASK, "arguments": {"image": {"input": "file1"}}},
    examples.SPEAK,
]
_TAKES = {"name": "file1", "modality": "image", "required": True, "many": False}
_GIVES = {"name": "audio", "modality": "audio", "required": True, "many": False}
_PIPELINE = {
    "name": NAME,
    "version": 1,
    "description": "Reads signs aloud",
    "inputs": [_TAKES],
    "outputs": [_GIVES],
    "plan": _PLAN,
    "create_time": "2030-01-31T12:00:00Z",
    "source_run_id": examples.RUN_ID,
}
_COUNTS = {"total": 20, "waiting": 0, "running": 0, "completed": 19, "incomplete": 0, "failed": 1, "cancelled": 0}
_BATCH = {
    "batch_id": BATCH_ID,
    "state": "incomplete",
    "spec": {
        "pipeline": {"name": NAME, "version": 1},
        "max_at_once": 0,
        "bypass_memo": False,
        "metadata": {},
    },
    "pipeline": _PIPELINE,
    "counts": _COUNTS,
    "create_time": "2030-01-31T12:00:00Z",
    "end_time": "2030-01-31T12:00:09Z",
    "items_per_second": 0,
}
_STARTED = {key: value for key, value in _BATCH.items() if key != "end_time"} | {
    "state": "queued",
    "counts": {**_COUNTS, "waiting": 20, "completed": 0, "failed": 0},
}
_ITEM = {
    "index": 1,
    "name": "in/0001.png",
    "inputs": [{"name": "file1", "artifact": {**examples.ARTIFACT, "media_type": "image/png", "name": "0001.png"}}],
    "state": "completed",
    "run_id": examples.RUN_ID,
    "outputs": {"audio": {"artifact": examples.ARTIFACT}},
    "usage": {
        "busy": 0.4,
        "elapsed": 0.45,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0.0000062,
        "pool_seconds": {"cpu": 0.62},
    },
}
_RESULT = {
    "index": 1,
    "name": "in/0001.png",
    "state": "completed",
    "run_id": examples.RUN_ID,
    "outputs": {"audio": {"artifact": examples.ARTIFACT}},
    "error": None,
    "seconds": 0.45,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost": 0.0000062,
}
_TABLE = (
    "index,name,state,run_id,outputs.audio,error.reason,error.message,error.remedy,"
    "seconds,input_tokens,output_tokens,cost\r\n"
    f"1,in/0001.png,completed,{examples.RUN_ID},/v1/artifacts/{examples.ARTIFACT['sha256']},,,,0.45,0,0,6.2e-06\r\n"
)
_SUMMARY = {
    "batch_id": BATCH_ID,
    "state": "incomplete",
    "counts": _COUNTS,
    "seconds": {"total": 8.6, "median": 0.44, "p95": 0.61},
    "input_tokens": 0,
    "output_tokens": 0,
    "cost": 0.000124,
    "pool_seconds": {"cpu": 12.4},
    "slowest": [{"index": 7, "name": "in/0007.png", "seconds": 0.61}],
    "errors": [
        {"reason": "UNREADABLE", "message": "the picture cannot be decoded", "count": 1, "names": ["in/0013.png"]}
    ],
}
_ITEMS = [{"name": "in/0001.png", "inputs": [{"name": "file1", "file_id": "file_5d1c2f8e7a9b40d3c6e1f2a3"}]}]
_ASKED = {"pipeline": {"name": NAME}}
_LINES = "".join(f"{line}\n" for line in map(json.dumps, (_ASKED, *_ITEMS)))


def _body(schema: Any, *, required: bool = True, **body: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, **body}}
    return {"openapi_extra": {"requestBody": {"required": required, "content": content}}}


def _pipeline_response(description: str) -> dict[str, Any]:
    response = answer(description, "Pipeline", _PIPELINE)
    return {**response, "headers": {"Location": {"description": "URL of the version.", "schema": {"type": "string"}}}}


SAVE: dict[str, Any] = {
    "status_code": 201,
    "responses": {
        200: _pipeline_response("Unchanged: the latest version has the same content."),
        201: _pipeline_response("Saved as a new version. `Location` is the URL of the version."),
    },
    **_body(
        reference("SavePipelineRequest" + INPUT_SUFFIX),
        examples={
            "run": {"value": {"run_id": examples.RUN_ID, "pin_models": True}},
            "plan": {"value": {"description": "Reads signs aloud", "plan": _PLAN}},
        },
    ),
}
PIPELINES: dict[str, Any] = {
    "responses": {200: answer("A page of pipelines.", "PipelineList", {"object": "list", "data": [_PIPELINE]})}
}
PIPELINE: dict[str, Any] = {"responses": {200: answer("The pipeline.", "Pipeline", _PIPELINE)}}
NO_CONTENT: dict[str, Any] = {"status_code": 204, "responses": {204: {"description": "Done."}}}
SCHEMA: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The schema.",
            "content": {"application/json": {"schema": {"type": "object"}, "example": {"title": "A pipeline"}}},
        }
    }
}

START: dict[str, Any] = {
    "status_code": 202,
    "responses": {202: answer("Accepted. `Location` is the URL of the batch.", "Batch", _STARTED)},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": reference("BatchRequest"), "example": {**_ASKED, "items": _ITEMS}},
                "application/x-ndjson": {"schema": reference("BatchLines"), "example": _LINES},
            },
        }
    },
}
BATCHES: dict[str, Any] = {
    "responses": {200: answer("A page of batches.", "BatchList", {"object": "list", "data": [_STARTED]})}
}
BATCH: dict[str, Any] = {"responses": {200: answer("The batch.", "Batch", _BATCH)}}
ITEMS: dict[str, Any] = {
    "responses": {200: answer("A page of items.", "BatchItemList", {"object": "list", "data": [_ITEM]})}
}
RESULTS: dict[str, Any] = {
    "responses": {
        200: {
            "description": "One line per item, in input order.",
            "content": {
                **DOWNLOAD,
                "application/x-ndjson": {"schema": reference("BatchResults"), "example": f"{json.dumps(_RESULT)}\n"},
                "text/csv": {"schema": {"type": "string"}, "example": _TABLE},
            },
        }
    }
}
SUMMARY: dict[str, Any] = {"responses": {200: answer("The summary.", "BatchSummary", _SUMMARY)}}
EVENTS: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The batch, sent whenever it changes, until it has ended.",
            "content": {
                "text/event-stream": {
                    "schema": reference("BatchEvents"),
                    "example": f'event: batch\ndata: {{"batch_id":"{BATCH_ID}","state":"running","counts":{{…}}}}\n',
                }
            },
        },
        204: {"description": "The batch has ended and the client has seen its last event."},
    }
}
RESUME: dict[str, Any] = {
    "status_code": 202,
    "responses": {202: answer("Resumed.", "Batch", _STARTED)},
    **_body(
        {
            "type": "object",
            "properties": {
                "failed_only": {"type": ["boolean", "null"], "description": "Run only the failed items again."}
            },
            "additionalProperties": False,
        },
        required=False,
        example={"failed_only": True},
    ),
}
