"""What the API's description says beyond the routes' signatures: bodies, answers, examples."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gateway.openapi import errors, examples
from gateway.openapi.schemas import TAKEN, event_stream, listed, reference, schemas
from gateway.pipelines import schema as keeping
from gateway.webhooks.schema import WEBHOOK
from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import ModelCard, Route
from protos.hugginggpt.v1.record_pb2 import RunRecord, Verification
from protos.hugginggpt.v1.run_pb2 import Run, RunSpec
from protos.hugginggpt.v1.task_pb2 import TaskSpec

DESCRIPTION = """Send words and files; a plan of model tasks is made, each task gets a model, and an answer comes back
with every artifact and every decision.

A run belongs to the server, not to the connection: closing a stream does not stop it, and
`GET /v1/runs/{run_id}/events` resumes after any event. Every error is a problem (RFC 9457) with a stable `code` and a
`remedy`, and also has the `error` object that OpenAI's clients read."""

_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "error"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, naming what is at fault."},
        "code": {"type": "string", "description": "Stable, upper case."},
        "remedy": {"type": "string", "description": "What the reader can do about it."},
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
    "description": "`local`: no byte of request, files or results leaves the house.",
}

_OWN = {
    "Problem": _PROBLEM_SCHEMA,
    "Health": {"type": "object", "properties": {"status": {"const": "ok"}, "service": _TEXT, "version": _TEXT}},
    "EventStream": event_stream("RunEvent", "The event's number."),
    "RunList": listed(reference("Run"), next_page_token=_TEXT),
    "TaskList": listed(
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
    "ModelList": listed(
        _OPENAI_MODEL,
        revision=_TEXT,
        models={"type": "array", "items": reference("ModelCard")},
        routes={"type": "array", "items": reference("Route")},
        selection_policy={"type": "string", "enum": ["rank", "llm"]},
        next_page_token=_TEXT,
    ),
    "ExpertList": listed(reference("Expert")),
    "File": {
        "type": "object",
        "required": ["id", "object", "bytes", "created_at", "filename", "purpose", "status", "artifact"],
        "properties": {
            "id": _TEXT,
            "object": {"const": "file"},
            "bytes": {"type": "integer"},
            "created_at": {"type": "integer", "description": "Seconds since the epoch."},
            "expires_at": {"type": "integer"},
            "filename": _TEXT,
            "purpose": _TEXT,
            "status": {"const": "processed"},
            "artifact": reference("Artifact"),
        },
    },
    "FileList": listed(
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
            "title": {"type": "string", "description": "How its first request begins."},
            "runs": {"type": "array", "items": reference("Run")},
        },
    },
    "ConversationList": listed(reference("Conversation"), next_page_token=_TEXT),
    **keeping.OWN,
    "Webhook": WEBHOOK,
    "WebhookList": listed(reference("Webhook")),
    "Deleted": {
        "type": "object",
        "required": ["id", "object", "deleted"],
        "properties": {"id": _TEXT, "object": _TEXT, "deleted": {"const": True}},
    },
}


def answer(description: str, schema: str, example: Any) -> dict[str, Any]:
    """One answer in JSON."""
    content = {"application/json": {"schema": reference(schema), "example": example}}
    return {"description": description, "content": content}


_EVENTS = {
    "description": "The run's events, each once, to its end.",
    "content": {"text/event-stream": {"schema": reference("EventStream"), "example": examples.STREAM}},
}

CREATE: dict[str, Any] = {
    "status_code": 202,
    "responses": {
        200: {
            "description": "By `Accept: text/event-stream` the events; by `Prefer: wait` the run, if it ended in time.",
            "content": {**_EVENTS["content"], **answer("", "Run", examples.RUN)["content"]},  # type: ignore[dict-item]
        },
        202: answer("Accepted; `Location` says where it is.", "Run", examples.RUNNING),
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
                            "request": {"type": "string", "description": "The request in words."},
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
EVENTS: dict[str, Any] = {"responses": {200: _EVENTS, 204: {"description": "The run has ended, and all was seen."}}}
NOTHING: dict[str, Any] = {"status_code": 204, "responses": {204: {"description": "Done."}}}
APPROVE: dict[str, Any] = {
    **NOTHING,
    "openapi_extra": {
        "requestBody": {
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"plan": {"type": ["array", "null"], "items": reference("Task" + TAKEN)}},
                        "additionalProperties": False,
                    },
                    "example": {"plan": [examples.TASK]},
                }
            }
        }
    },
}
HEALTH: dict[str, Any] = {
    "responses": {200: answer("It is.", "Health", {"status": "ok", "service": "hugginggpt", "version": "0.1.0"})}
}
TASKS: dict[str, Any] = {
    "responses": {
        200: answer("The kinds of task.", "TaskList", {"object": "list", "revision": "7", "data": [examples.SPEC]}),
        304: {"description": "They are what the client has."},
    }
}
MODELS: dict[str, Any] = {
    "responses": {
        200: answer("Controllers and model cards.", "ModelList", examples.MODELS),
        304: {"description": "They are what the client has."},
    }
}
EXPERTS: dict[str, Any] = {
    "responses": {200: answer("The experts.", "ExpertList", {"object": "list", "data": [examples.EXPERT]})}
}
ARTIFACT: dict[str, Any] = {
    "responses": {
        200: {"description": "All of it.", "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}},
        206: {"description": "The part asked for."},
        304: {"description": "It is what the client has."},
        307: {"description": "The object store has it, at `Location`."},
    }
}


_KEY = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, or a token of the issuer that the gateway trusts; where it asks for neither, nothing.",
}

_SENT = (Run, RunEvent, RunRecord, Verification, TaskSpec, ModelCard, Expert, Route, Artifact)


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: the routes' signatures, with schemas from the protos and problems everywhere."""
    described = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes, tags=app.openapi_tags
    )
    sent = [kind.DESCRIPTOR for kind in _SENT]
    taken = {**schemas([RunSpec.DESCRIPTOR, Artifact.DESCRIPTOR], taken=True), **keeping.taken()}
    taken["RunRequest"] = {
        **taken["RunSpec" + TAKEN],
        "properties": {**taken["RunSpec" + TAKEN]["properties"], "policy": _POLICY},
    }
    described["security"] = [{"key": []}, {}]
    described["components"] = {
        "securitySchemes": {"key": _KEY},
        "schemas": {**schemas([*sent, *keeping.SENT], taken=False), **taken, **_OWN},
        "responses": errors.responses(),
    }
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            operation["responses"] |= errors.possible(path, method, operation)
    return described
