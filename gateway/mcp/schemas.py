"""What tools take and give, as JSON Schema."""

from collections.abc import Iterable
from typing import Any

from gateway.admission import MAX_TASKS

Schema = dict[str, Any]

DEFAULT_WAIT, LONGEST_WAIT = 45, 600
"""Seconds; many clients give up on a call after sixty."""

MAX_FILES = 50

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_ANYTHING: Schema = {"type": "object"}


def taking(properties: Schema, required: Iterable[str] = ()) -> Schema:
    """The schema of a tool's arguments."""
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
    "description": "Files to work on, each an https URL, an uploaded file's id (file_…), or the URI of an earlier "
    "result. A plan refers to them as the inputs file1, file2, … in this order.",
}
WAIT: Schema = {
    "type": "number",
    "minimum": 0,
    "maximum": LONGEST_WAIT,
    "default": DEFAULT_WAIT,
    "description": "How long to wait for the end. After it a run_id comes back and the work goes on: use get_run.",
}
POLICY: Schema = {
    "type": "string",
    "enum": ["local", "open"],
    "description": "local: nothing leaves the machines of this service. Unset: as it is set up.",
}
CANCEL: Schema = {
    "type": "boolean",
    "default": False,
    "description": "Cancel the run if the client leaves before its end. Otherwise it goes on, and get_run finds it.",
}
RUN_ID: Schema = {"type": "string", "pattern": r"^run_\w{1,100}$", "description": "As a tool has given it."}
CONTINUES: Schema = {
    **RUN_ID,
    "description": "An earlier run that this one follows on, so that it knows what was said.",
}
PLAN: Schema = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_TASKS,
    "items": _ANYTHING,
    "description": 'Tasks, as the tool plan gives them: {"id": 1, "task": NAME, "arguments": {PORT: VALUE}, '
    '"parameters": {…}}. A VALUE is text, {"input": "file1"}, {"task_id": 1, "output": PORT} for what an earlier task '
    "makes, or a list of these.",
}
ARGUMENTS: Schema = {
    "type": "object",
    "description": "By input port, as tasks tells them. Where a port takes a file, an https URL, a file id or a URI.",
}
PARAMETERS: Schema = {"type": "object", "description": "By name; leave out what may be as usual."}

_FAILURE: Schema = {
    "type": "object",
    "properties": dict.fromkeys(("reason", "message", "remedy", "port", "code"), _TEXT),
}
_MADE: Schema = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "media_type": _TEXT,
        "size_bytes": {"type": "integer"},
        "uri": {"type": "string", "description": "For resources/read, and to name the file in another call."},
        "url": {"type": "string", "description": "Where its bytes are downloaded."},
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
            "description": "By port: short text or JSON; else an object with the uri where the whole is read.",
        },
        "failure": _FAILURE,
    },
    "required": ["id", "task"],
}

RUN: Schema = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "state": {"type": "string", "description": "completed, incomplete, failed and cancelled are ends."},
        "ended": {"type": "boolean"},
        "answer": _TEXT,
        "answer_uri": {"type": "string", "description": "Where the whole answer is read, if it is long."},
        "files": {"type": "array", "items": _MADE},
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
        "plan": {"type": "array", "items": _ANYTHING, "description": "For run_plan, with the same files."},
        "notes": _TEXTS,
        "failure": _FAILURE,
    },
    "required": ["run_id", "state", "ended", "plan"],
}
UPLOAD: Schema = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "PUT the bytes here, once, without a key."},
        "method": _TEXT,
        "expires_in_seconds": {"type": "integer"},
        "largest_bytes": {"type": "integer"},
        "example": _TEXT,
    },
    "required": ["url", "method", "expires_in_seconds"],
}
TASKS: Schema = {
    "type": "object",
    "properties": {"tasks": {"type": "array", "items": _ANYTHING}},
    "required": ["tasks"],
}
