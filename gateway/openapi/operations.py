"""Request bodies, responses and examples of the operations, for the OpenAPI document.

The messages are protobuf, read by json_decoder and written by json_encoder, so their schemas come from the descriptors;
the parameters of an operation are declared by its function.
"""

import json
from typing import Any

from gateway.core.uploads import MAX_FILES
from gateway.openapi import examples
from gateway.openapi.schemas import INPUT_SUFFIX, reference


def answer(description: str, schema: str, example: Any) -> dict[str, Any]:
    """Describes a JSON response with its schema and an example."""
    content = {"application/json": {"schema": reference(schema), "example": example}}
    return {"description": description, "content": content}


_EVENTS = {
    "description": "The run's events, each exactly once, until the run ends.",
    "content": {"text/event-stream": {"schema": reference("EventStream"), "example": examples.STREAM}},
}

CREATE_RUN: dict[str, Any] = {
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
LIST_RUNS: dict[str, Any] = {
    "responses": {
        200: answer("A page of runs, newest first.", "RunList", {"object": "list", "data": [examples.RUNNING]})
    }
}
GET_RUN: dict[str, Any] = {"responses": {200: answer("The run.", "Run", examples.RUN)}}
STREAM_RUN_EVENTS: dict[str, Any] = {
    "responses": {200: _EVENTS, 204: {"description": "The run has ended and no event follows the given one."}}
}
NO_CONTENT: dict[str, Any] = {"status_code": 204, "responses": {204: {"description": "Done."}}}
APPROVE_PLAN: dict[str, Any] = {
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
LIST_TASKS: dict[str, Any] = {
    "responses": {
        200: answer(
            "The available task types.", "TaskList", {"object": "list", "revision": "7", "data": [examples.SPEC]}
        ),
        304: {"description": "Not modified."},
    }
}
LIST_MODELS: dict[str, Any] = {
    "responses": {
        200: answer("Controllers and model cards.", "ModelList", examples.MODELS),
        304: {"description": "Not modified."},
    }
}
LIST_EXPERTS: dict[str, Any] = {
    "responses": {200: answer("The experts.", "ExpertList", {"object": "list", "data": [examples.EXPERT]})}
}
_BYTES = {"schema": {"type": "string", "format": "binary"}}
BYTES = {"application/octet-stream": {**_BYTES, "example": "(bytes)"}}
"""Content of a download whose actual type varies: client generators support this type, but no type ranges."""

DOWNLOAD: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The complete content; `Content-Type` is its own type.",
            "content": {**BYTES, "*/*": _BYTES},
        },
        206: {"description": "The requested byte range."},
        304: {"description": "Not modified."},
        307: {"description": "The content is in the object store, at `Location`."},
    }
}

UPLOAD_FILE: dict[str, Any] = {
    "responses": {200: answer("The stored file.", "File", examples.FILE)},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file"],
                        "dependentRequired": {"expires_after[anchor]": ["expires_after[seconds]"]},
                        "properties": {
                            "file": {"type": "string", "format": "binary"},
                            "purpose": {"type": "string", "default": "user_data"},
                            "expires_after[anchor]": {"const": "created_at"},
                            "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
                        },
                    },
                    "example": {"file": "(bytes of speech.wav)", "purpose": "user_data"},
                }
            },
        }
    },
}
UPLOAD_ARTIFACTS: dict[str, Any] = {
    "responses": {200: answer("For each file, in order, its artifact or an error.", "UploadList", examples.UPLOADS)},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file"],
                        "properties": {
                            "file": {
                                "type": "array",
                                "maxItems": MAX_FILES,
                                "items": {"type": "string", "format": "binary"},
                            }
                        },
                    },
                    "example": {"file": ["(bytes of sign-1.png)", "(bytes of sign-2.png)"]},
                }
            },
        }
    },
}
LIST_FILES: dict[str, Any] = {"responses": {200: answer("A page of files.", "FileList", examples.FILE_PAGE)}}
GET_FILE: dict[str, Any] = {"responses": {200: answer("The file.", "File", examples.FILE)}}
DELETE_FILE: dict[str, Any] = {
    "responses": {
        200: answer("The file is deleted.", "Deleted", {"id": examples.FILE_ID, "object": "file", "deleted": True})
    }
}
LIST_CONVERSATIONS: dict[str, Any] = {
    "responses": {
        200: answer(
            "A page of conversations.", "ConversationList", {"object": "list", "data": [examples.CONVERSATION]}
        ),
    }
}
GET_CONVERSATION: dict[str, Any] = {
    "responses": {
        200: answer("The conversation.", "Conversation", {**examples.CONVERSATION, "runs": [examples.RUNNING]})
    }
}
DELETE_CONVERSATION: dict[str, Any] = {
    "responses": {
        200: answer(
            "The conversation is deleted.",
            "Deleted",
            {"id": examples.RUN_ID, "object": "conversation.deleted", "deleted": True},
        )
    }
}


def _body(schema: Any, *, required: bool = True, **body: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, **body}}
    return {"openapi_extra": {"requestBody": {"required": required, "content": content}}}


def _pipeline_response(description: str) -> dict[str, Any]:
    response = answer(description, "Pipeline", examples.PIPELINE)
    return {**response, "headers": {"Location": {"description": "URL of the version.", "schema": {"type": "string"}}}}


SAVE_PIPELINE: dict[str, Any] = {
    "status_code": 201,
    "responses": {
        200: _pipeline_response("Unchanged: the latest version has the same content."),
        201: _pipeline_response("Saved as a new version. `Location` is the URL of the version."),
    },
    **_body(
        reference("SavePipelineRequest" + INPUT_SUFFIX),
        examples={
            "run": {"value": {"run_id": examples.RUN_ID, "pin_models": True}},
            "plan": {"value": {"description": "Reads signs aloud", "plan": examples.PLAN}},
        },
    ),
}
LIST_PIPELINES: dict[str, Any] = {
    "responses": {200: answer("A page of pipelines.", "PipelineList", {"object": "list", "data": [examples.PIPELINE]})}
}
GET_PIPELINE: dict[str, Any] = {"responses": {200: answer("The pipeline.", "Pipeline", examples.PIPELINE)}}
GET_PIPELINE_SCHEMA: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The schema.",
            "content": {"application/json": {"schema": {"type": "object"}, "example": {"title": "A pipeline"}}},
        }
    }
}
CREATE_BATCH: dict[str, Any] = {
    "status_code": 202,
    "responses": {202: answer("Accepted. `Location` is the URL of the batch.", "Batch", examples.STARTED_BATCH)},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": reference("BatchRequest"),
                    "example": {**examples.BATCH_SPEC, "items": examples.NEW_ITEMS},
                },
                "application/x-ndjson": {"schema": reference("BatchLines"), "example": examples.BATCH_LINES},
            },
        }
    },
}
LIST_BATCHES: dict[str, Any] = {
    "responses": {200: answer("A page of batches.", "BatchList", {"object": "list", "data": [examples.STARTED_BATCH]})}
}
GET_BATCH: dict[str, Any] = {"responses": {200: answer("The batch.", "Batch", examples.BATCH)}}
LIST_BATCH_ITEMS: dict[str, Any] = {
    "responses": {200: answer("A page of items.", "BatchItemList", {"object": "list", "data": [examples.BATCH_ITEM]})}
}
GET_BATCH_RESULTS: dict[str, Any] = {
    "responses": {
        200: {
            "description": "One line per item, in input order.",
            "content": {
                **BYTES,
                "application/x-ndjson": {
                    "schema": reference("BatchResults"),
                    "example": f"{json.dumps(examples.BATCH_RESULT)}\n",
                },
                "text/csv": {"schema": {"type": "string"}, "example": examples.BATCH_TABLE},
            },
        }
    }
}
GET_BATCH_SUMMARY: dict[str, Any] = {"responses": {200: answer("The summary.", "BatchSummary", examples.BATCH_SUMMARY)}}
STREAM_BATCH_EVENTS: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The batch, sent whenever it changes, until it has ended.",
            "content": {
                "text/event-stream": {
                    "schema": reference("BatchEvents"),
                    "example": examples.BATCH_EVENT,
                }
            },
        },
        204: {"description": "The batch has ended and the client has seen its last event."},
    }
}
RESUME_BATCH: dict[str, Any] = {
    "status_code": 202,
    "responses": {202: answer("Resumed.", "Batch", examples.STARTED_BATCH)},
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

GET_RUN_RECORD: dict[str, Any] = {"responses": {200: answer("The record.", "RunRecord", examples.RECORD)}}
VERIFY_RUN: dict[str, Any] = {
    "status_code": 202,
    "responses": {
        200: answer("No task can be rerun; each task states why.", "Verification", examples.VERIFICATION),
        202: answer(
            "The rerun has started. `Location` is the URL of its result.", "Verification", examples.STARTED_VERIFICATION
        ),
    },
}
GET_VERIFICATION: dict[str, Any] = {
    "responses": {
        200: answer("The result; without tasks until the rerun has ended.", "Verification", examples.VERIFICATION)
    }
}
GET_RECORD_SCHEMA: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The schema.",
            "content": {"application/json": {"schema": {"type": "object"}, "example": {"title": "A record"}}},
        }
    }
}

CREATE_WEBHOOK: dict[str, Any] = {
    "status_code": 201,
    "responses": {
        201: answer(
            "The webhook, with its signing secret.", "Webhook", {**examples.WEBHOOK, "secret": examples.WEBHOOK_SECRET}
        )
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["url"],
                        "additionalProperties": False,
                        "properties": {
                            "url": {"type": "string", "description": "An https URL."},
                            "name": {"type": "string", "maxLength": 100},
                        },
                    },
                    "example": {"url": examples.WEBHOOK_URL, "name": "the shop"},
                }
            },
        }
    },
}
LIST_WEBHOOKS: dict[str, Any] = {
    "responses": {200: answer("The webhooks.", "WebhookList", {"object": "list", "data": [examples.WEBHOOK]})}
}
GET_WEBHOOK: dict[str, Any] = {
    "responses": {
        200: answer("The webhook.", "Webhook", {**examples.WEBHOOK, "deliveries": [examples.WEBHOOK_DELIVERY]})
    }
}
DELETE_WEBHOOK: dict[str, Any] = {
    "responses": {
        200: answer(
            "The webhook is deleted.", "Deleted", {"id": examples.WEBHOOK_ID, "object": "webhook", "deleted": True}
        )
    }
}
