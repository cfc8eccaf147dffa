"""Example values of the API's messages for the OpenAPI document."""

import json

ARTIFACT = {
    "sha256": "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
    "media_type": "audio/wav",
    "size_bytes": 88244,
    "name": "speech.wav",
}
TASK = {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "file1"}}, "source": "Read the text"}
SPEAK = {"id": 2, "task": "text-to-speech", "arguments": {"text": {"task_id": 1, "output": "text"}}}
RUN_ID = "run_19a2b3c4d5e6f708192a3b4"

RUN = {
    "run_id": RUN_ID,
    "state": "completed",
    "spec": {
        "request": "Read the text in this image aloud",
        "inputs": [],
        "bypass_memo": False,
        "history": [],
        "metadata": {},
    },
    "tasks": [
        {
            "task": SPEAK,
            "state": "succeeded",
            "result": {"task_id": 2, "attempt": 1, "seed": 0, "outputs": {"audio": {"artifact": ARTIFACT}}},
        }
    ],
    "notes": [],
    "answer": "The image says “Open daily”. Here it is read aloud: speech.wav.",
    "last_sequence": 14,
    "create_time": "2030-01-31T12:00:00Z",
    "end_time": "2030-01-31T12:00:02Z",
    "conversation_id": RUN_ID,
}

RUNNING = {key: value for key, value in RUN.items() if key not in ("answer", "end_time")} | {
    "state": "running",
    "tasks": [],
    "last_sequence": 1,
}

SPEC = {
    "name": "text-to-speech",
    "description": "Reads a text aloud.",
    "inputs": [{"name": "text", "modality": "text", "required": True, "many": False}],
    "outputs": [{"name": "audio", "modality": "audio", "required": True, "many": False}],
    "parameters": [],
    "determinism": "exact",
    "examples": ["Read this letter aloud"],
    "experts": ["lite"],
    "dormant": False,
}
CARD = {
    "id": "espeak-ng",
    "revision": "0.2.4",
    "task": "text-to-speech",
    "description": "Formant synthesis: robotic, quick, in many languages.",
    "downloads": 0,
    "likes": 0,
    "license": "GPL-3.0-or-later",
    "languages": ["en", "de"],
    "parameter_count": 0,
    "loaded_bytes": 0,
    "outputs": ["audio"],
    "location": "internal",
    "state": "ready",
    "exceeds_memory": False,
}
ROUTE = {
    "task": "text-to-speech",
    "model": {"id": "espeak-ng", "revision": "0.2.4", "weight": 0.0},
    "candidates": [],
    "forbidden": [{"id": "org/other-voice", "weight": 0.0}],
    "scores": {},
    "problems": ["no expert offers org/other-voice for text-to-speech now"],
}
MODELS = {
    "object": "list",
    "data": [{"id": "hugginggpt", "object": "model", "created": 0, "owned_by": "hugginggpt"}],
    "revision": "7",
    "models": [CARD],
    "routes": [ROUTE],
    "selection_policy": "rank",
}
EXPERT = {
    "name": "lite",
    "revision": "228fe387061056e1",
    "addresses": ["127.0.0.1:46031"],
    "scales_to_zero": False,
    "dormant": False,
    "tasks": ["text-to-speech"],
    "problems": [],
}

STREAM = f"""id: 1
event: run_accepted
data: {{"run_id":"{RUN_ID}","sequence":1,"run_accepted":{{…}}}}

id: 2
event: task_planned
data: {{"run_id":"{RUN_ID}","sequence":2,"task_id":1,"task_planned":{{"task":{{…}}}}}}
"""

PIPELINE_NAME = "read-aloud"
BATCH_ID = "batch_19a2b3c4d5ea1b2c3d4e5f60718"
PLAN = [
    {**TASK, "arguments": {"image": {"input": "file1"}}},
    SPEAK,
]
_TAKES = {"name": "file1", "modality": "image", "required": True, "many": False}
_GIVES = {"name": "audio", "modality": "audio", "required": True, "many": False}
PIPELINE = {
    "name": PIPELINE_NAME,
    "version": 1,
    "description": "Reads signs aloud",
    "inputs": [_TAKES],
    "outputs": [_GIVES],
    "plan": PLAN,
    "create_time": "2030-01-31T12:00:00Z",
    "source_run_id": RUN_ID,
}
_COUNTS = {"total": 20, "waiting": 0, "running": 0, "completed": 19, "incomplete": 0, "failed": 1, "cancelled": 0}
BATCH = {
    "batch_id": BATCH_ID,
    "state": "incomplete",
    "spec": {
        "pipeline": {"name": PIPELINE_NAME, "version": 1},
        "max_at_once": 0,
        "bypass_memo": False,
        "metadata": {},
    },
    "pipeline": PIPELINE,
    "counts": _COUNTS,
    "create_time": "2030-01-31T12:00:00Z",
    "end_time": "2030-01-31T12:00:09Z",
    "items_per_second": 0,
}
STARTED_BATCH = {key: value for key, value in BATCH.items() if key != "end_time"} | {
    "state": "queued",
    "counts": {**_COUNTS, "waiting": 20, "completed": 0, "failed": 0},
}
BATCH_ITEM = {
    "index": 1,
    "name": "in/0001.png",
    "inputs": [{"name": "file1", "artifact": {**ARTIFACT, "media_type": "image/png", "name": "0001.png"}}],
    "state": "completed",
    "run_id": RUN_ID,
    "outputs": {"audio": {"artifact": ARTIFACT}},
    "usage": {
        "busy": 0.4,
        "elapsed": 0.45,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0.0000062,
        "pool_seconds": {"cpu": 0.62},
    },
}
BATCH_RESULT = {
    "index": 1,
    "name": "in/0001.png",
    "state": "completed",
    "run_id": RUN_ID,
    "outputs": {"audio": {"artifact": ARTIFACT}},
    "error": None,
    "seconds": 0.45,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost": 0.0000062,
}
BATCH_TABLE = (
    "index,name,state,run_id,outputs.audio,error.reason,error.message,error.remedy,"
    "seconds,input_tokens,output_tokens,cost\r\n"
    f"1,in/0001.png,completed,{RUN_ID},/v1/artifacts/{ARTIFACT['sha256']},,,,0.45,0,0,6.2e-06\r\n"
)
BATCH_SUMMARY = {
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
NEW_ITEMS = [{"name": "in/0001.png", "inputs": [{"name": "file1", "file_id": "file_5d1c2f8e7a9b40d3c6e1f2a3"}]}]
BATCH_SPEC = {"pipeline": {"name": PIPELINE_NAME}}
BATCH_LINES = "".join(f"{line}\n" for line in map(json.dumps, (BATCH_SPEC, *NEW_ITEMS)))
BATCH_EVENT = f'event: batch\ndata: {{"batch_id":"{BATCH_ID}","state":"running","counts":{{…}}}}\n'
FILE_ID = "file_5d1c2f8e7a9b40d3c6e1f2a3"
UPLOADS = {
    "object": "list",
    "data": [
        {"artifact": ARTIFACT},
        {
            "error": {
                "type": "urn:hugginggpt:problem:empty-file",
                "title": "Bad request",
                "status": 400,
                "detail": "notes.txt is empty",
                "code": "EMPTY_FILE",
                "remedy": "send a file with content",
                "error": {
                    "message": "notes.txt is empty",
                    "type": "invalid_request_error",
                    "code": "EMPTY_FILE",
                    "param": None,
                },
            }
        },
    ],
}
FILE = {
    "id": FILE_ID,
    "object": "file",
    "bytes": 88244,
    "created_at": 1900000000,
    "filename": "speech.wav",
    "purpose": "user_data",
    "status": "processed",
    "artifact": ARTIFACT,
}
CONVERSATION = {
    "id": RUN_ID,
    "object": "conversation",
    "created_at": 1900000000,
    "metadata": {},
    "title": "Read the text in this image aloud",
}
FILE_PAGE = {"object": "list", "data": [FILE], "has_more": False, "first_id": FILE_ID, "last_id": FILE_ID}
AGAIN_ID = "run_19a2b3c4f00dcafe0192a3b4"
_RECORDED_MODEL = {
    "model_id": "espeak-ng",
    "revision": "0.2.4",
    "expert": "lite",
    "expert_version": "0.1.0",
    "location": "internal",
}
_RECORDED_AUDIO = {
    "sha256": ARTIFACT["sha256"],
    "kind": "artifact",
    "size_bytes": 88244,
    "media_type": "audio/wav",
}
_RECORDED_TEXT = {
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "kind": "text",
    "size_bytes": 4,
}
_RECORDED_TASK = {
    "id": 1,
    "task": "text-to-speech",
    "state": "succeeded",
    "determinism": "numeric",
    "arguments": [{"port": "text", "value": _RECORDED_TEXT, "task_id": 0, "input": 1}],
    "parameters": [{"name": "speed", "number": 1}],
    "pinned": False,
    "model": _RECORDED_MODEL,
    "seed": 0,
    "outputs": {"audio": _RECORDED_AUDIO},
    "attempts": [{"attempt": 1, "model": _RECORDED_MODEL}],
    "reused": False,
}
RECORD = {
    "version": 1,
    "run_id": RUN_ID,
    "conversation_id": RUN_ID,
    "caller": {"tenant": "default", "priority": "interactive"},
    "create_time": "2030-01-31T12:00:00Z",
    "end_time": "2030-01-31T12:00:02Z",
    "state": "completed",
    "policy": "local",
    "bypass_memo": False,
    "inputs": [_RECORDED_TEXT],
    "planning": [
        {"controller": "embedded", "version": "weights:5d41402abc4b2a76", "fell_back": False, "confidence": 1}
    ],
    "tasks": [_RECORDED_TASK],
    "llm_models": [],
    "takeovers": 0,
}
VERIFICATION = {
    "version": 1,
    "run_id": RUN_ID,
    "again_run_id": AGAIN_ID,
    "ended": True,
    "verified": True,
    "tasks": [
        {
            "id": 1,
            "task": "text-to-speech",
            "outcome": "same",
            "model": _RECORDED_MODEL,
            "determinism": "numeric",
            "findings": [],
        }
    ],
}
STARTED_VERIFICATION = {**VERIFICATION, "ended": False, "verified": False, "tasks": []}
WEBHOOK_ID = "wh_5d1c2f8e7a9b40d3c6e1f2a3"
WEBHOOK_URL = "https://example.org/hooks/hugginggpt"
WEBHOOK = {"id": WEBHOOK_ID, "object": "webhook", "url": WEBHOOK_URL, "name": "the shop", "created_at": 1900000000}
WEBHOOK_SECRET = "whsec_bm90IGEgcmVhbCBzZWNyZXQsIGJ1dCBvbmUgdG8gc2hvdw=="  # noqa: S105  # an example
WEBHOOK_DELIVERY = {
    "id": "msg_0b8f6c1d2e3a4b5c6d7e8f90",
    "run_id": RUN_ID,
    "state": "delivered",
    "attempts": 1,
    "outcome": "answered 204",
    "created_at": 1900000100,
}
