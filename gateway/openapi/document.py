"""Builds the OpenAPI document: routes from FastAPI, schemas from the protos, and errors."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from gateway.http.problem import MEDIA_TYPE, TITLES, RangeNotSatisfiable, http_status, problem
from gateway.openapi import examples
from gateway.openapi import schemas as pipeline_schema
from gateway.openapi.schemas import INPUT_SUFFIX, WEBHOOK, event_stream, list_schema, reference, schemas
from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import ModelCard, Route
from protos.hugginggpt.v1.record_pb2 import RunRecord, Verification
from protos.hugginggpt.v1.run_pb2 import Run, RunSpec
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

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
    "UploadList": list_schema(
        {
            "type": "object",
            "description": "An uploaded file: one of both properties.",
            "properties": {"artifact": reference("Artifact"), "error": reference("Problem")},
        }
    ),
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
    "create_embeddings": "Create embeddings",
    "create_images": "Create images",
    "create_speech": "Create speech",
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
    "upload_artifacts": "Upload many files as artifacts",
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
        "responses": _error_responses(),
    }
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"].partition(" ")[0]
            operation["operationId"] = operation_id = _OPERATION_IDS.get((method, path), name)
            operation["summary"] = _SUMMARIES.get(operation_id) or _summary(operation_id)
            operation["responses"].pop("422", None)
            operation["responses"] |= _possible_errors(path, method, operation)
    uploaded = openapi["paths"]["/v1/artifacts"]["post"]["responses"]["200"]["content"]["application/json"]
    uploaded["example"] = examples.UPLOADS  # FastAPI has dropped its null value
    return openapi


_ERROR_EXAMPLES = (
    InvalidRequest(
        "cannot accept photo.png: its name means image/png, but its content is application/pdf",
        reason="FILE_TYPE",
        remedy="send the right file, or rename it to match its content",
    ),
    Unauthenticated(
        "no API key was sent",
        remedy="send Authorization: Bearer KEY, or set HUGGINGGPT_API_KEY (hugginggpt keys create makes one)",
    ),
    PermissionDenied("this operation requires an admin key", remedy="use a key created with --admin"),
    NotFound("there is no run run_1", reason="RUN", remedy="check the id; it may have been deleted"),
    FailedPrecondition("the run is still active", reason="RUNNING", remedy="cancel it, or wait until it has ended"),
    InvalidRequest("the body is larger than the limit of 100 MB", reason="TOO_LARGE", remedy="send a smaller body"),
    InvalidRequest(
        "the content type text/plain is not supported", reason="CONTENT_TYPE", remedy="send application/json"
    ),
    RangeNotSatisfiable("the requested range is outside the artifact", remedy="request a range within its 88244 bytes"),
    PermissionDenied(
        "this gateway does not serve the host example.org", reason="HOST", remedy="use the gateway's own address"
    ),
    AlreadyExists("the idempotency key was used for a different request", remedy="send another key, or none"),
    Overloaded(
        "the limit of requests per minute is exceeded",
        reason="RATE_LIMIT",
        remedy="retry after the time in Retry-After",
        retry_after=timedelta(seconds=7),
    ),
    Unavailable("the orchestrator is unavailable", remedy="try again later"),
)


def _error_responses() -> dict[str, Any]:
    """Returns the error responses that operations refer to, by component name."""
    named = {
        _error_name(http_status(error)): _error_response(TITLES[http_status(error)], problem(error))
        for error in _ERROR_EXAMPLES
    }
    return {"Problem": _error_response("An error, with its cause and a remedy.", problem(_ERROR_EXAMPLES[0])), **named}


def _possible_errors(path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the error responses of an operation by status; rare errors are covered by 4XX and 5XX.

    Args:
        path: path template, such as /v1/runs/{run_id}.
        method: HTTP method in lower case.
        operation: the operation object built so far.
    """
    named = {parameter["name"] for parameter in operation.get("parameters", ())}
    sends, takes_one = "requestBody" in operation, "{" in path
    applies = {
        400: True,
        401: "health" not in operation["tags"],
        403: sends or method == "delete",
        404: sends or takes_one,
        409: takes_one and method != "get",
        413: sends,
        415: sends,
        416: "206" in operation["responses"],
        421: True,
        422: "idempotency-key" in named,
        429: "health" not in operation["tags"],
        503: True,
    }
    statuses = {str(status): _error_name(status) for status, does in applies.items() if does}
    every = {**statuses, "4XX": "Problem", "5XX": "Problem"}
    return {status: {"$ref": f"#/components/responses/{name}"} for status, name in every.items()}


def _error_name(status: int) -> str:
    return f"Problem{status}"


def _error_response(description: str, example: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": reference("Problem"), "example": example}},
    }
