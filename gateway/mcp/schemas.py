"""JSON Schemas of the tools' arguments and results, and the validation of arguments."""

from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from gateway.core.validation import MAX_TASKS
from gateway.json_encoder import enum_names
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common.errors import InvalidRequest

Schema = dict[str, Any]

DEFAULT_WAIT_SECONDS, MAX_WAIT_SECONDS = 45, 600
"""Many clients time out a call after 60 seconds."""

MAX_FILES = 50

DEFAULT_RUNS, MAX_RUNS = 10, 50
"""Runs on a page of list_runs."""

_MAX_MESSAGE = 300

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_ANY_OBJECT: Schema = {"type": "object"}


def object_schema(properties: Schema, required: Iterable[str] = ()) -> Schema:
    """Returns the schema of an object without additional properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def text(description: str) -> Schema:
    return {"type": "string", "minLength": 1, "description": description}


FILES: Schema = {
    "type": "array",
    "maxItems": MAX_FILES,
    "items": {"type": "string", "minLength": 1},
    "description": "Input files, each an https URL, the id of an uploaded file (file_…), or the URI of an earlier "
    "result. A plan refers to them as the inputs file1, file2, … in this order.",
}
WAIT: Schema = {
    "type": "number",
    "minimum": 0,
    "maximum": MAX_WAIT_SECONDS,
    "default": DEFAULT_WAIT_SECONDS,
    "description": "Seconds to wait for the end of the run. The run continues afterwards: use get_run.",
}
POLICY: Schema = {
    "type": "string",
    "enum": ["local", "open"],
    "description": "local: no data leaves the deployment. Unset: the gateway's default.",
}
CANCEL: Schema = {
    "type": "boolean",
    "default": False,
    "description": "Cancel the run if the client disconnects before its end. Otherwise it continues; use get_run.",
}
RUN_ID: Schema = {
    "type": "string",
    "pattern": r"^run_\w{1,100}$",
    "description": "Id of a run, from the result of another tool.",
}
RUN_STATES: Schema = {
    "type": "array",
    "items": {"type": "string", "enum": list(enum_names(RunState.DESCRIPTOR).values())},
    "description": "Only runs in these states. Unset: all.",
}
PAGE_SIZE: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_RUNS, "default": DEFAULT_RUNS}
CONTINUES: Schema = {
    **RUN_ID,
    "description": "An earlier run whose conversation this one continues.",
}
PLAN: Schema = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_TASKS,
    "items": _ANY_OBJECT,
    "description": 'Tasks, as returned by the tool plan: {"id": 1, "task": NAME, "arguments": {PORT: VALUE}, '
    '"parameters": {…}}. A VALUE is text, {"input": "file1"}, {"task_id": 1, "output": PORT} for the output of an '
    "earlier task, or a list of these.",
}
ARGUMENTS: Schema = {
    "type": "object",
    "description": "Values by input port, as described by the tool tasks. A file is an https URL, a file id or a URI.",
}
PARAMETERS: Schema = {"type": "object", "description": "Values by parameter name; all parameters have defaults."}

_FAILURE: Schema = {
    "type": "object",
    "properties": dict.fromkeys(("reason", "message", "remedy", "port", "code"), _TEXT),
}
_OUTPUT_FILE: Schema = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "media_type": _TEXT,
        "size_bytes": {"type": "integer"},
        "uri": {"type": "string", "description": "URI for resources/read, and for using the file in another call."},
        "url": {"type": "string", "description": "Download URL."},
    },
    "required": ["uri", "url"],
}
_TASK: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "task": _TEXT,
        "state": _TEXT,
        "model": _TEXT,
        "outputs": {
            "type": "object",
            "description": "Values by port: short text or JSON, otherwise an object with the uri of the full content.",
        },
        "failure": _FAILURE,
    },
    "required": ["id", "task"],
}

RUN: Schema = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "state": {"type": "string", "description": "Final states: completed, incomplete, failed, cancelled."},
        "ended": {"type": "boolean"},
        "answer": _TEXT,
        "answer_uri": {"type": "string", "description": "URI of the full answer, if it is long."},
        "files": {"type": "array", "items": _OUTPUT_FILE},
        "tasks": {"type": "array", "items": _TASK},
        "notes": _TEXTS,
        "failure": _FAILURE,
    },
    "required": ["run_id", "state", "ended"],
}
PLANNED: Schema = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "state": _TEXT,
        "ended": {"type": "boolean"},
        "plan": {"type": "array", "items": _ANY_OBJECT, "description": "Plan for run_plan, with the same files."},
        "notes": _TEXTS,
        "failure": _FAILURE,
    },
    "required": ["run_id", "state", "ended", "plan"],
}
RUNS: Schema = {
    "type": "object",
    "properties": {
        "runs": {
            "type": "array",
            "description": "Newest first, without results: call get_run for those.",
            "items": {
                "type": "object",
                "properties": {
                    "run_id": _TEXT,
                    "state": _TEXT,
                    "ended": {"type": "boolean"},
                    "request": _TEXT,
                    "created": {"type": "string", "format": "date-time"},
                    "conversation_id": {"type": "string", "description": "The first run of its conversation."},
                },
                "required": ["run_id", "state", "ended", "request"],
            },
        },
        "next_page_token": {"type": "string", "description": "For the next page; absent on the last one."},
    },
    "required": ["runs"],
}
UPLOAD: Schema = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "URL for one PUT request with the bytes, without an API key."},
        "method": _TEXT,
        "expires_in_seconds": {"type": "integer"},
        "largest_bytes": {"type": "integer"},
        "example": _TEXT,
    },
    "required": ["url", "method", "expires_in_seconds"],
}
TASKS: Schema = {
    "type": "object",
    "properties": {"tasks": {"type": "array", "items": _ANY_OBJECT}},
    "required": ["tasks"],
}


def validate_arguments(arguments: Mapping[str, Any], schema: Schema) -> None:
    """Raises InvalidRequest that names the first invalid argument and its error."""
    error = next(Draft202012Validator(schema).iter_errors(dict(arguments)), None)
    if error is None:
        return
    where = _path(error)
    message = error.message if len(error.message) <= _MAX_MESSAGE else f"{error.message[:_MAX_MESSAGE]}…"
    raise InvalidRequest(
        f"{where or 'the arguments'}: {message}",
        reason="ARGUMENTS",
        remedy=f"arguments of the tool: {', '.join(schema['properties'])}",
        port=where,
    )


def _path(error: ValidationError) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return "".join(steps).removeprefix(".")
