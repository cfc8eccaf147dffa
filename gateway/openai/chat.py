"""Chat completions: the route, and the projection of runs to completions and chunks."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from gateway.http.artifact_routes import request_site
from gateway.http.json_body import json_response
from gateway.http.problem import problem
from gateway.http.sse import HEARTBEAT_SECONDS, single_line_json
from gateway.openai import controllers, messages
from gateway.openai.event_rendering import (
    COMPLETION,
    FIELD,
    TRUNCATION_REASONS,
    EventRenderer,
    Kind,
    Piece,
    extension_fields,
    object_id,
)
from gateway.openai.request_body import Fields, body
from gateway.openai.request_options import RequestOptions, answer_options, chat_format, check_parameters, warnings
from gateway.openai.run_adapter import RunAdapter
from gateway.openai.streams import CLIENT_CLOSED_REQUEST, EventSource, OpenAIStream, read_until_end
from gateway.openapi import openai_operations
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, RunSpec
from services.common.call_context import current, use_caller
from services.common.errors import ServiceError

_DONE = b"data: [DONE]\n\n"

_KEYS = {Kind.REASONING: "reasoning_content", Kind.TEXT: "content", Kind.REFUSAL: "refusal"}
"""Message keys of the pieces; progress is reported as reasoning."""


class Completion:
    """A chat completion, updated by all events of a run in order.

    Args:
        site: scheme and host of this gateway, for artifact URLs.
        usage: whether the last chunk reports the LLM tokens of the run.
    """

    def __init__(self, site: str, *, usage: bool = False) -> None:
        self._renderer = EventRenderer(site)
        self._usage = usage
        self._texts: dict[Kind, list[str]] = {kind: [] for kind in Kind}

    def take(self, event: RunEvent) -> list[dict[str, Any]]:
        """Applies an event; returns the resulting chunks."""
        pieces = self._renderer.take(event)
        for piece in pieces:
            self._texts[piece.kind].append(piece.text)
        return list(self._chunks(event, pieces))

    def completion(self) -> dict[str, Any]:
        """The complete object."""
        texts = {kind: "".join(pieces) or None for kind, pieces in self._texts.items()}
        refusal, reasoning = texts[Kind.REFUSAL], texts[Kind.REASONING]
        content = None if refusal else texts[Kind.TEXT] or ""
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal, "annotations": []}
        choice = {
            "index": 0,
            "message": {**message, **({"reasoning_content": reasoning} if reasoning else {})},
            "finish_reason": self._finish_reason(),
            "logprobs": None,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self._usage_object(),
            FIELD: extension_fields(self._renderer),
        }

    def _chunks(self, event: RunEvent, pieces: list[Piece]) -> Iterator[dict[str, Any]]:
        if event.HasField("run_accepted"):
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        for piece in pieces:
            yield self._chunk({_KEYS[piece.kind]: piece.text})
        if event.HasField("run_ended"):
            yield {**self._chunk({}, self._finish_reason()), FIELD: extension_fields(self._renderer)}
            if self._usage:
                yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage_object()}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        unused = {"usage": None} if self._usage else {}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **unused}

    def _head(self, kind: str) -> dict[str, Any]:
        run = self._renderer.run
        return {
            "id": object_id(COMPLETION, run.run_id),
            "object": kind,
            "created": run.create_time.seconds,
            "model": self._renderer.options.model,
            "service_tier": None,
            "system_fingerprint": None,
        }

    def _finish_reason(self) -> str:
        return "length" if self._renderer.run.failure.reason in TRUNCATION_REASONS else "stop"

    def _usage_object(self) -> dict[str, Any]:
        usage = self._renderer.run.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }


class CompletionStream(OpenAIStream):
    """Stream of the chunks of a chat completion."""

    def __init__(
        self,
        source: EventSource,
        completion: Completion,
        headers: Mapping[str, str],
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(source, headers, heartbeat_seconds=heartbeat_seconds)
        self._completion = completion

    def event_frames(self, event: RunEvent) -> bytes:
        chunks = b"".join(b"data: %s\n\n" % single_line_json(chunk) for chunk in self._completion.take(event))
        return chunks + _DONE if event.HasField("run_ended") else chunks

    def error_frames(self, error: ServiceError) -> bytes:
        return b"data: %s\n\n" % single_line_json({"error": problem(error)["error"]})


class ChatRoutes:
    """Chat completions. Each is a run that is cancelled when its connection closes."""

    def __init__(self, adapter: RunAdapter) -> None:
        self._adapter = adapter

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/chat", tags=["openai"], default_response_class=Response)
        router.add_api_route("/completions", self.create, methods=["POST"], **openai_operations.CHAT)
        return router

    async def create(
        self,
        request: Request,
        idempotency_key: Annotated[
            str, Header(description="Requests with the same key and body start one run only, for 24 hours.")
        ] = "",
    ) -> Response:
        """Creates a chat completion, compatible with OpenAI's API.

        The last user message is the request, the messages before it are the history. Files are sent as `image_url`,
        `input_audio` or `file` parts. Progress is reported as `reasoning_content`; output files are images and links
        in the answer. The run is cancelled when the client disconnects.
        """
        sent = await body(request)
        streams, usage = sent.flag("stream"), sent.map("stream_options").flag("include_usage")
        with use_caller(controllers.with_controller_policy(current(), sent.text("model"))):
            spec, options = await self.prepare(sent)
            spec.on_disconnect = ON_DISCONNECT_CANCEL
            source = await self._adapter.start_owned(spec, options, idempotency_key)
        headers = {"x-run-id": source.run_id, **warnings(sent)}
        completion = Completion(request_site(request), usage=bool(usage))
        if streams:
            return CompletionStream(source, completion, headers)
        if not await read_until_end(source, completion.take, request.receive):
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return json_response(completion.completion(), headers=headers)

    async def prepare(self, sent: Fields) -> tuple[RunSpec, RequestOptions]:
        """Converts the body of a request to a run.

        Raises:
            ServiceError: the request is invalid.
        """
        model = controllers.require_controller(sent.text("model"))
        check_parameters(sent)
        form = await asyncio.to_thread(chat_format, sent)
        spec = await messages.of_messages([*sent.maps("messages")], self._adapter.parts)
        spec.answer_options.CopyFrom(answer_options(sent, form))
        return spec, RequestOptions(model=model, form=form, store=sent.flag("store") is not False)
