"""Builds the OpenAPI document: routes from FastAPI, schemas from the protos, and errors."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from gateway.openapi import errors, examples
from gateway.openapi import schemas as pipeline_schema
from gateway.openapi.schemas import INPUT_SUFFIX, WEBHOOK, event_stream, list_schema, reference, schemas
from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import ModelCard, Route
from protos.hugginggpt.v1.record_pb2 import RunRecord, Verification
from protos.hugginggpt.v1.run_pb2 import Run, RunSpec
from protos.hugginggpt.v1.task_pb2 import TaskSpec

DESCRIPTION = """Send a request in natural language, with or without files. HuggingGPT plans model tasks, selects a
model for each task, runs the tasks, and returns an answer with every artifact and every decision.

A run belongs to the server, not to the connection: closing a stream does not stop the run, and
`GET /v1/runs/{run_id}/events` resumes after any event. Every error is a problem document (RFC 9457) with a stable
`code` and a `remedy`, and contains the `error` object that OpenAI's clients read."""

_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "error"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What failed and why."},
        "code": {"type": "string", "description": "Stable error code in upper case."},
        "remedy": {"type": "string", "description": "What the client can do about it."},
        "instance": {"type": "string"},
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "string"},
                "param": {"type": ["string", "null"]},
            },
        },
    },
}


_TEXT = {"type": "string"}
_OPENAI_MODEL = {
    "type": "object",
    "properties": {"id": _TEXT, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": _TEXT},
}

_POLICY = {
    "type": "string",
    "enum": ["local", "open"],
    "description": "`local`: no byte of the request, its files or its results leaves the deployment.",
}

_OWN_SCHEMAS = {
    "Problem": _PROBLEM_SCHEMA,
    "Health": {"type": "object", "properties": {"status": {"const": "ok"}, "service": _TEXT, "version": _TEXT}},
    "EventStream": event_stream("RunEvent", "The event's number."),
    "RunList": list_schema(reference("Run"), next_page_token=_TEXT),
    "TaskList": list_schema(
        {
            "allOf": [
                reference("TaskSpec"),
                {
                    "type": "object",
                    "properties": {"experts": {"type": "array", "items": _TEXT}, "dormant": {"type": "boolean"}},
                },
            ]
        },
        revision=_TEXT,
    ),
    "ModelList": list_schema(
        _OPENAI_MODEL,
        revision=_TEXT,
        models={"type": "array", "items": reference("ModelCard")},
        routes={"type": "array", "items": reference("Route")},
        selection_policy={"type": "string", "enum": ["rank", "llm"]},
        next_page_token=_TEXT,
    ),
    "ExpertList": list_schema(reference("Expert")),
    "File": {
        "type": "object",
        "required": ["id", "object", "bytes", "created_at", "filename", "purpose", "status", "artifact"],
        "properties": {
            "id": _TEXT,
            "object": {"const": "file"},
            "bytes": {"type": "integer"},
            "created_at": {"type": "integer", "description": "Unix time in seconds."},
            "expires_at": {"type": "integer"},
            "filename": _TEXT,
            "purpose": _TEXT,
            "status": {"const": "processed"},
            "artifact": reference("Artifact"),
        },
    },
    "FileList": list_schema(
        reference("File"),
        has_more={"type": "boolean"},
        first_id={"type": ["string", "null"]},
        last_id={"type": ["string", "null"]},
    ),
    "Conversation": {
        "type": "object",
        "required": ["id", "object", "created_at", "metadata", "title"],
        "properties": {
            "id": _TEXT,
            "object": {"const": "conversation"},
            "created_at": {"type": "integer"},
            "metadata": {"type": "object"},
            "title": {"type": "string", "description": "The beginning of the first request."},
            "runs": {"type": "array", "items": reference("Run")},
        },
    },
    "ConversationList": list_schema(reference("Conversation"), next_page_token=_TEXT),
    **pipeline_schema.OWN_SCHEMAS,
    "Webhook": WEBHOOK,
    "WebhookList": list_schema(reference("Webhook")),
    "Deleted": {
        "type": "object",
        "required": ["id", "object", "deleted"],
        "properties": {"id": _TEXT, "object": _TEXT, "deleted": {"const": True}},
    },
}


def answer(description: str, schema: str, example: Any) -> dict[str, Any]:
    """Describes a JSON response with its schema and an example."""
    content = {"application/json": {"schema": reference(schema), "example": example}}
    return {"description": description, "content": content}


_EVENTS = {
    "description": "The run's events, each exactly once, until the run ends.",
    "content": {"text/event-stream": {"schema": reference("EventStream"), "example": examples.STREAM}},
}

CREATE: dict[str, Any] = {
    "status_code": 202,
    "responses": {
        200: {
            "description": "`Accept: text/event-stream`: the events. `Prefer: wait`: the run, if it ended in time.",
            "content": {**answer("", "Run", examples.RUN)["content"], **_EVENTS["content"]},  # type: ignore[dict-item]
        },
        202: answer("Accepted. `Location` is the URL of the run.", "Run", examples.RUNNING),
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": reference("RunRequest"),
                    "examples": {
                        "words": {"value": {"request": "Is this good news? “We won!”"}},
                        "url": {
                            "value": {
                                "request": "What is in this picture?",
                                "inputs": [{"url": "https://example.org/picture.png"}],
                            }
                        },
                        "pipeline": {
                            "value": {
                                "pipeline": {"name": "read-aloud"},
                                "inputs": [{"name": "file1", "url": "https://example.org/picture.png"}],
                            }
                        },
                        "plan": {
                            "value": {
                                "plan": [examples.TASK, examples.SPEAK],
                                "inputs": [{"artifact": {"sha256": examples.ARTIFACT["sha256"]}}],
                            }
                        },
                    },
                },
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "request": {"type": "string", "description": "The request in natural language."},
                            "spec": {**reference("RunRequest")},
                            "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        },
                    },
                    "example": {"request": "Read the text in this image aloud", "file": ["(bytes of sign.png)"]},
                },
            },
        }
    },
}
RUNS: dict[str, Any] = {
    "responses": {
        200: answer("A page of runs, newest first.", "RunList", {"object": "list", "data": [examples.RUNNING]})
    }
}
RUN: dict[str, Any] = {"responses": {200: answer("The run.", "Run", examples.RUN)}}
EVENTS: dict[str, Any] = {
    "responses": {200: _EVENTS, 204: {"description": "The run has ended and no event follows the given one."}}
}
NO_CONTENT: dict[str, Any] = {"status_code": 204, "responses": {204: {"description": "Done."}}}
APPROVE: dict[str, Any] = {
    **NO_CONTENT,
    "openapi_extra": {
        "requestBody": {
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"plan": {"type": ["array", "null"], "items": reference("Task" + INPUT_SUFFIX)}},
                        "additionalProperties": False,
                    },
                    "example": {"plan": [examples.TASK]},
                }
            }
        }
    },
}
HEALTH: dict[str, Any] = {
    "responses": {200: answer("Healthy.", "Health", {"status": "ok", "service": "hugginggpt", "version": "0.1.0"})}
}
TASKS: dict[str, Any] = {
    "responses": {
        200: answer(
            "The available task types.", "TaskList", {"object": "list", "revision": "7", "data": [examples.SPEC]}
        ),
        304: {"description": "Not modified."},
    }
}
MODELS: dict[str, Any] = {
    "responses": {
        200: answer("Controllers and model cards.", "ModelList", examples.MODELS),
        304: {"description": "Not modified."},
    }
}
EXPERTS: dict[str, Any] = {
    "responses": {200: answer("The experts.", "ExpertList", {"object": "list", "data": [examples.EXPERT]})}
}
_BYTES = {"schema": {"type": "string", "format": "binary"}}
DOWNLOAD = {"application/octet-stream": {**_BYTES, "example": "(bytes)"}}
"""Content of a download whose actual type varies: client generators support this type, but no type ranges."""

ARTIFACT: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The complete content; `Content-Type` is its own type.",
            "content": {**DOWNLOAD, "*/*": _BYTES},
        },
        206: {"description": "The requested byte range."},
        304: {"description": "Not modified."},
        307: {"description": "The content is in the object store, at `Location`."},
    }
}


_KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, or a JWT of the configured issuer. Not needed with GATEWAY_AUTHENTICATION=none.",
}

_RESPONSE_MESSAGES = (Run, RunEvent, RunRecord, Verification, TaskSpec, ModelCard, Expert, Route, Artifact)


_OPERATION_IDS = {
    ("post", "/v1/chat/completions"): "create_chat_completion",
    ("post", "/v1/responses"): "create_response",
    ("get", "/v1/responses/{response_id}"): "get_response",
    ("delete", "/v1/responses/{response_id}"): "delete_response",
    ("post", "/v1/responses/{response_id}/cancel"): "cancel_response",
    ("get", "/v1/responses/{response_id}/input_items"): "list_response_input_items",
    ("get", "/v1/models/{model}"): "get_model",
    ("put", "/mcp/uploads/{secret}"): "put_mcp_upload",
    ("post", "/mcp/uploads/{secret}"): "post_mcp_upload",
}
"""Operation ids of operations whose function's name is not unique."""

_SUMMARIES = {
    "approve_plan": "Approve the plan of a run",
    "get_health": "Check that the gateway is alive",
    "get_readiness": "Check that the gateway is ready",
    "get_pipeline_batch_results": "Download the results of a pipeline batch",
    "get_pipeline_batch_summary": "Summarize a pipeline batch",
    "get_pipeline_schema": "Get the JSON Schema of pipeline files",
    "get_record_schema": "Get the JSON Schema of run records",
    "get_run_record": "Get the record of a run",
    "get_verification": "Get the result of a verification",
    "list_pipeline_batch_items": "List the items of a pipeline batch",
    "list_pipeline_versions": "List the versions of a pipeline",
    "list_response_input_items": "List the input items of a response",
    "post_mcp_upload": "Upload a file for an MCP tool (POST)",
    "put_mcp_upload": "Upload a file for an MCP tool",
    "stream_pipeline_batch_events": "Stream the states of a pipeline batch",
    "stream_run_events": "Stream the events of a run",
}
"""Summaries that do not follow from the operation id as "Create a run" follows from create_run."""


def unique_id(route: APIRoute) -> str:
    """Identifies a route while the document is built; its first word becomes the operation id."""
    return f"{route.name} {'/'.join(sorted(route.methods or ()))} {route.path}"


def _summary(operation_id: str) -> str:
    verb, _, noun = operation_id.replace("_", " ").partition(" ")
    if verb == "list":
        return f"List {noun}"
    return f"{verb.capitalize()} {'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def document(app: FastAPI) -> dict[str, Any]:
    """Builds the OpenAPI document; every operation lists the errors it can return as problem documents."""
    openapi = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes, tags=app.openapi_tags
    )
    response_types = [kind.DESCRIPTOR for kind in _RESPONSE_MESSAGES]
    input_schemas = {
        **schemas([RunSpec.DESCRIPTOR, Artifact.DESCRIPTOR], as_input=True),
        **pipeline_schema.input_schemas(),
    }
    input_schemas["RunRequest"] = {
        **input_schemas["RunSpec" + INPUT_SUFFIX],
        "properties": {**input_schemas["RunSpec" + INPUT_SUFFIX]["properties"], "policy": _POLICY},
    }
    openapi["security"] = [{"key": []}, {}]
    openapi["components"] = {
        "securitySchemes": {"key": _KEY},
        "schemas": {
            **schemas([*response_types, *pipeline_schema.RESPONSE_MESSAGES], as_input=False),
            **input_schemas,
            **_OWN_SCHEMAS,
        },
        "responses": errors.responses(),
    }
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"].partition(" ")[0]
            operation["operationId"] = operation_id = _OPERATION_IDS.get((method, path), name)
            operation["summary"] = _SUMMARIES.get(operation_id) or _summary(operation_id)
            operation["responses"].pop("422", None)
            operation["responses"] |= errors.possible_errors(path, method, operation)
    return openapi
