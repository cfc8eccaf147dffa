"""Routes that are served by one kind of task each: embeddings, transcriptions, speech and images."""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from grpc import StatusCode
from starlette.responses import Response

from gateway.core.artifact_links import artifact_url
from gateway.core.catalog import CONTROLLERS, Catalog
from gateway.core.uploads import Allowance, store_file
from gateway.http.artifact_routes import request_site
from gateway.http.json_body import json_response, read_limited
from gateway.http.multipart import is_form, parts
from gateway.json_encoder import dumps
from gateway.json_text import checked_text, refuse
from gateway.openai.controllers import with_controller_policy
from gateway.openai.request_body import Fields, body
from gateway.openai.request_options import WARNING_HEADER, RequestOptions, unsupported
from gateway.openai.run_adapter import RunAdapter
from gateway.openai.streams import CLIENT_CLOSED_REQUEST, read_until_end
from gateway.openapi import openai_operations
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import ListTasksRequest
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, RUN_MODE_RESULTS, RUN_STATE_COMPLETED, Run, RunSpec
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest, ModelFailed, NotFound, ServiceError

EMBEDDING, TRANSCRIPTION, SPEECH, IMAGE = (
    "feature-extraction",
    "automatic-speech-recognition",
    "text-to-speech",
    "text-to-image",
)
"""Tasks that serve the routes."""

MAX_EMBEDDINGS = 512
MAX_IMAGES = 10

OPENAI_VOICES = frozenset(
    {"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"}
)
"""Voices of OpenAI's models, which its clients must send; the voice of the local model is used instead."""

_IGNORED_OF_IMAGES = ("background", "moderation", "output_compression", "quality", "style")
_FIELD_BYTES = 10_000
_ERROR_CODES: Mapping[int, StatusCode] = {code.value[0]: code for code in StatusCode}

IdempotencyKey = Annotated[str, Header(description="Requests with the same key and body start one run only, for 24 h.")]


class TaskRoutes:
    """Runs one kind of task per route and returns its outputs as OpenAI's API does.

    Args:
        adapter: starts runs.
        catalog: lists the available tasks.
        store: artifact store.
        upload_bytes: maximum size of a recording.
    """

    def __init__(self, adapter: RunAdapter, catalog: Catalog, store: ArtifactStore, upload_bytes: int) -> None:
        self._adapter = adapter
        self._catalog = catalog
        self._store = store
        self._upload_bytes = upload_bytes

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["openai"], default_response_class=Response)
        add = router.add_api_route
        add("/embeddings", self.create_embeddings, methods=["POST"], **openai_operations.EMBEDDINGS)
        add("/audio/transcriptions", self.create_transcription, methods=["POST"], **openai_operations.TRANSCRIPTION)
        add("/audio/speech", self.create_speech, methods=["POST"], **openai_operations.SPEECH)
        add("/images/generations", self.create_images, methods=["POST"], **openai_operations.IMAGES)
        return router

    async def create_embeddings(self, request: Request, idempotency_key: IdempotencyKey = "") -> Response:
        """Computes the vectors of one or several texts, by a feature-extraction model."""
        sent = await body(request)
        run = await self._run(EMBEDDING, embedding_spec(sent), sent.text("model"), request, idempotency_key)
        return json_response(await self.embeddings(sent, run), headers=_run_header(run)) if run else _closed()

    async def embeddings(self, sent: Fields, run: Run) -> dict[str, Any]:
        """The embeddings of a completed run.

        Raises:
            ServiceError: the run did not complete.
        """
        require_completed(run)
        vectors = [await self._json(_output(run, index, "embedding")) for index in range(len(run.tasks))]
        data = [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, sent.text("encoding_format"))}
            for index, vector in enumerate(vectors)
        ]
        used = run.usage.input_tokens
        usage = {"prompt_tokens": used, "total_tokens": used}
        return {"object": "list", "data": data, "model": sent.text("model"), "usage": usage}

    async def prepare_embeddings(self, sent: Fields) -> tuple[RunSpec, RequestOptions]:
        """Converts the body of a request for embeddings to a run.

        Raises:
            ServiceError: the request is invalid, or no expert offers the task.
        """
        spec, model = embedding_spec(sent), sent.text("model")
        await self.pin(EMBEDDING, spec, model)
        return spec, RequestOptions(model=model or CONTROLLERS[0])

    async def create_transcription(self, request: Request, idempotency_key: IdempotencyKey = "") -> Response:
        """Writes down what is said in a recording, as `json`, `text` or `verbose_json`."""
        await self._require(TRANSCRIPTION)
        recording, fields = await self._recording(request)
        form = fields.get("response_format", "json")
        if form not in {"json", "text", "verbose_json"}:
            raise unsupported("response_format", "use json, text or verbose_json")
        if fields.get("stream") == "true":
            raise unsupported("stream", "leave it out: the transcription is returned when it is complete")
        language = fields.get("language", "")
        task = _task(1, TRANSCRIPTION, {"audio": Value(artifact=recording)}, {"language": language or None})
        spec = _spec([task])
        run = await self._run(TRANSCRIPTION, spec, fields.get("model", ""), request, idempotency_key)
        if run is None:
            return _closed()
        require_completed(run)
        text = await self._text(_output(run, 0, "text"))
        if form == "text":
            return Response(f"{text}\n", media_type="text/plain", headers=_run_header(run))
        outputs = run.tasks[0].result.outputs
        segments = await self._json(outputs["segments"]) if form == "verbose_json" and "segments" in outputs else []
        more = _verbose(segments, language) if form == "verbose_json" else {}
        return json_response({"text": text, **more}, headers=_run_header(run))

    async def create_speech(self, request: Request, idempotency_key: IdempotencyKey = "") -> Response:
        """Reads a text aloud; the content is a WAV file unless the model makes another type."""
        sent = await body(request)
        if sent.text("response_format", "wav") != "wav":
            raise unsupported("response_format", "leave it out or use wav")
        if sent.text("stream_format", "audio") != "audio":
            raise unsupported("stream_format", "leave it out: the content is the audio")
        voice, speed = sent.text("voice"), sent.get("speed")
        parameters = {
            "voice": None if voice in OPENAI_VOICES else voice or None,
            "speed": None if speed == 1 else speed,
        }
        text = _required_text(sent, "input")
        spec = _spec([_task(1, SPEECH, {"text": Value(text=text)}, parameters)])
        run = await self._run(SPEECH, spec, sent.text("model"), request, idempotency_key)
        if run is None:
            return _closed()
        require_completed(run)
        audio = _output(run, 0, "audio").artifact
        has_warning = voice in OPENAI_VOICES or sent.get("instructions")
        warning = {WARNING_HEADER: "voice and instructions of OpenAI's models have no effect"} if has_warning else {}
        content = await self._content(audio)
        return Response(content, media_type=audio.media_type, headers={**_run_header(run), **warning})

    async def create_images(self, request: Request, idempotency_key: IdempotencyKey = "") -> Response:
        """Makes pictures from a description, as links or as base64."""
        sent = await body(request)
        form = sent.text("response_format", "url")
        if form not in {"url", "b64_json"}:
            refuse("response_format", f"is {form[:50]!r}", remedy="use url or b64_json")
        if sent.text("output_format", "png") != "png":
            raise unsupported("output_format", "leave it out or use png")
        number = sent.get("n") if "n" in sent else 1
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= MAX_IMAGES:
            refuse("n", "is not a number of pictures", remedy=f"send 1 to {MAX_IMAGES}")
        prompt, parameters = Value(text=_required_text(sent, "prompt")), _size(sent)
        spec = _spec([_task(index, IMAGE, {"text": prompt}, parameters) for index in range(1, number + 1)])
        run = await self._run(IMAGE, spec, sent.text("model"), request, idempotency_key)
        if run is None:
            return _closed()
        require_completed(run)
        pictures = [_output(run, index, "image").artifact for index in range(number)]
        if form == "url":
            data = [{"url": artifact_url(picture, request_site(request))} for picture in pictures]
        else:
            data = [{"b64_json": base64.b64encode(await self._content(each)).decode()} for each in pictures]
        ignored = [name for name in _IGNORED_OF_IMAGES if name in sent]
        warning = {WARNING_HEADER: f"without effect: {', '.join(ignored)}"} if ignored else {}
        content = {"created": run.create_time.seconds, "data": data}
        return json_response(content, headers={**_run_header(run), **warning})

    async def _run(self, task: str, spec: RunSpec, model: str, request: Request, key: str) -> Run | None:
        """Runs a plan to its end; None if the client disconnected."""
        await self.pin(task, spec, model)
        fold = RunFold(ignore_unplanned=True)
        with call_context.use_caller(with_controller_policy(call_context.current(), model)):
            spec.on_disconnect = ON_DISCONNECT_CANCEL
            source = await self._adapter.start_owned(spec, RequestOptions(model=model or CONTROLLERS[0]), key)
            is_complete = await read_until_end(source, fold.apply, request.receive)
        return fold.run if is_complete else None

    async def pin(self, task: str, spec: RunSpec, model: str) -> None:
        """Pins the model of all tasks, unless a controller is to choose one.

        Raises:
            NotFound: TASK, no expert offers the task.
        """
        await self._require(task)
        for each in spec.plan.tasks:
            each.pinned_model = "" if model in CONTROLLERS else model

    async def _require(self, task: str) -> None:
        reply = await self._catalog.tasks(ListTasksRequest())
        if not any(each.spec.name == task for each in reply.tasks):
            raise NotFound(
                f"no expert offers the task {task}, which serves this request",
                reason="TASK",
                remedy="start an expert that offers it; GET /v1/tasks lists the tasks that are offered",
            )

    async def _recording(self, request: Request) -> tuple[Artifact, dict[str, str]]:
        """Stores the recording of a form; returns it and the other fields."""
        kind = request.headers.get("content-type", "")
        if not is_form(kind):
            remedy = "send multipart/form-data with the recording in the field file"
            raise InvalidRequest("the body is not multipart/form-data", reason="CONTENT_TYPE", remedy=remedy)
        recording, fields = None, dict[str, str]()
        async for part in parts(kind, request.stream()):
            if part.name == "file" and part.filename and recording is None:
                allowance, tenant = Allowance(self._upload_bytes), call_context.current().tenant
                recording = await store_file(
                    self._store, tenant, part.filename, part.content, allowance, stated_type=part.media_type
                )
            else:
                field = await read_limited(part.content, _FIELD_BYTES, f"the field {part.name}")
                fields[part.name] = checked_text(field.decode(errors="replace"), part.name)
        if recording is None:
            raise InvalidRequest(
                "the form contains no file", remedy="send the recording in the field file", port="file"
            )
        return recording, fields

    async def _content(self, artifact: Artifact) -> bytes:
        return await self._store.get(call_context.current().tenant, artifact.sha256)

    async def _text(self, value: Value) -> str:
        return (await self._content(value.artifact)).decode() if value.HasField("artifact") else value.text

    async def _json(self, value: Value) -> Any:
        """Parses a JSON output, which is an artifact if it is large."""
        return json.loads(await self._content(value.artifact) if value.HasField("artifact") else value.json)


def embedding_spec(sent: Fields) -> RunSpec:
    """The run that computes the embeddings of a request.

    Raises:
        InvalidRequest: the input is not a text or a list of texts, or a parameter is not supported.
    """
    if "dimensions" in sent:
        raise unsupported(sent.place("dimensions"), "leave it out: a vector has the length that its model makes")
    if sent.text("encoding_format", "float") not in {"float", "base64"}:
        refuse(sent.place("encoding_format"), "is unknown", remedy="use float or base64")
    texts = [sent.text("input")] if isinstance(sent.get("input"), str) else sent.items("input")
    if not 0 < len(texts) <= MAX_EMBEDDINGS:
        refuse(sent.place("input"), "has no or too many texts", remedy=f"send 1 to {MAX_EMBEDDINGS} texts")
    for index, text in enumerate(texts):
        if not checked_text(text, f"{sent.place('input')}[{index}]").strip():
            refuse(f"{sent.place('input')}[{index}]", "is empty", remedy="send a text")
    return _spec([_task(number, EMBEDDING, {"text": Value(text=text)}) for number, text in enumerate(texts, start=1)])


def require_completed(run: Run) -> None:
    """Raises the failure of a run, or of its first failed task, as an error."""
    failures = [run.failure, *(status.result.failure for status in run.tasks)]
    failure = next((each for each in failures if each.message), None)
    if run.state != RUN_STATE_COMPLETED or failure:
        raise _error(failure) if failure else ModelFailed("the run ended without a result", remedy="try again")


def _error(failure: Failure) -> ServiceError:
    error = ServiceError(failure.message, remedy=failure.remedy, reason=failure.reason or None, port=failure.port)
    error.code = _ERROR_CODES.get(failure.code or StatusCode.INTERNAL.value[0], StatusCode.INTERNAL)
    return error


def _spec(tasks: Sequence[Task]) -> RunSpec:
    spec = RunSpec(mode=RUN_MODE_RESULTS)
    spec.plan.tasks.extend(tasks)
    return spec


def _task(number: int, name: str, inputs: Mapping[str, Value], parameters: Mapping[str, object] | None = None) -> Task:
    given = {key: value for key, value in (parameters or {}).items() if value is not None}
    return Task(
        id=number,
        task=name,
        arguments={port: Argument(value=value) for port, value in inputs.items()},
        parameters_json=dumps(given).decode() if given else "",
    )


def _output(run: Run, index: int, port: str) -> Value:
    outputs = run.tasks[index].result.outputs if index < len(run.tasks) else {}
    if port not in outputs:
        raise ModelFailed(f"the task made no {port}", remedy="try again")
    return outputs[port]


def _required_text(sent: Fields, name: str) -> str:
    text = sent.text(name)
    if not text.strip():
        refuse(sent.place(name), "is missing or empty", remedy="send a text")
    return text


def _encoded(vector: Any, encoding: str) -> Any:
    """A vector as a list, or as base64 of its 32-bit numbers, which OpenAI's client requests and decodes."""
    numbers = vector[0] if vector and isinstance(vector[0], list) else vector
    if encoding != "base64":
        return numbers
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def _verbose(segments: Any, language: str) -> dict[str, Any]:
    found = [
        {"id": number, "start": each.get("start", 0.0), "end": each.get("end", 0.0), "text": each.get("text", "")}
        for number, each in enumerate(segments if isinstance(segments, list) else [])
    ]
    duration = max((each["end"] for each in found), default=0.0)
    return {"task": "transcribe", "language": language, "duration": duration, "segments": found}


def _size(sent: Fields) -> dict[str, object]:
    size = sent.text("size", "auto")
    if size == "auto":
        return {}
    width, _, height = size.partition("x")
    if not (width.isascii() and width.isdecimal() and height.isascii() and height.isdecimal()):
        refuse(sent.place("size"), f"is {size[:50]!r}", remedy="send WIDTHxHEIGHT in pixels, such as 512x512, or auto")
    return {"width": int(width[:6]), "height": int(height[:6])}


def _run_header(run: Run) -> dict[str, str]:
    return {"x-run-id": run.run_id}


def _closed() -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)
