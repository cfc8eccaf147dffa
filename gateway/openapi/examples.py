"""Example values of the API's messages for the OpenAPI document."""

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
