"""Routes of /v1/responses."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from gateway.core.artifact_links import artifact_url
from gateway.http.artifact_routes import request_site
from gateway.http.json_body import json_response
from gateway.http.problem import problem
from gateway.http.sse import HEARTBEAT_SECONDS, LastEventId, single_line_json
from gateway.json_text import refuse
from gateway.openai import controllers, messages
from gateway.openai.event_rendering import MESSAGE, RESPONSE, object_id, run_id_of
from gateway.openai.request_body import Fields, body
from gateway.openai.request_options import (
    RequestOptions,
    answer_options,
    check_parameters,
    read_metadata,
    response_format,
    warnings,
)
from gateway.openai.response_projection import Event, Projection, projection
from gateway.openai.run_adapter import RunAdapter
from gateway.openai.streams import (
    CLIENT_CLOSED_REQUEST,
    EventSource,
    OpenAIStream,
    WatchedRun,
    read_until_end,
    wait_until_stopped,
)
from gateway.openapi import openai_operations
from protos.hugginggpt.v1.artifact_pb2 import NamedValue
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, ROLE_ASSISTANT, ROLE_USER, Run, RunSpec, Turn
from services.common.call_context import current, use_caller
from services.common.errors import InvalidRequest, NotFound, ServiceError, Unavailable

_NUMBER = re.compile(r"[0-9]{1,18}")

ResponseId = Annotated[str, Path(description="Id of the response.", examples=["resp_19a2b3c4d5e6f708192a3b4"])]


class ResponseStream(OpenAIStream):
    """Stream of the typed events of a response.

    Args:
        source: events of the run from the first.
        projection: projects events of the run to events of the response.
        headers: response headers.
        after: number of the last event received; -1 for none.
        heartbeat_seconds: interval of heartbeats.
    """

    def __init__(
        self,
        source: EventSource,
        projection: Projection,
        headers: Mapping[str, str],
        after: int = -1,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(source, headers, heartbeat_seconds=heartbeat_seconds)
        self._projection = projection
        self._last_number = after

    def event_frames(self, event: RunEvent) -> bytes:
        new = [each for each in self._projection.take(event) if each["sequence_number"] > self._last_number]
        self._last_number = new[-1]["sequence_number"] if new else self._last_number
        return b"".join(map(_frame, new))

    def error_frames(self, error: ServiceError) -> bytes:
        """Renders nothing for a temporary failure, after which the client can resume; otherwise an error event."""
        if isinstance(error, Unavailable):
            return b""
        content = problem(error)["error"]
        event = {"type": "error", "code": content["code"], "message": content["message"], "param": content["param"]}
        return b"event: error\ndata: %s\n\n" % single_line_json({**event, "sequence_number": self._last_number + 1})


def _frame(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        event["sequence_number"],
        event["type"].encode(),
        single_line_json(event),
    )


class ResponseRoutes:
    """Responses. Each is a run, which any gateway can render."""

    def __init__(self, adapter: RunAdapter) -> None:
        self._adapter = adapter

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/responses", tags=["openai"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create, methods=["POST"], **openai_operations.RESPOND)
        add("/{response_id}", self.show, methods=["GET"], **openai_operations.RESPONSE)
        add("/{response_id}", self.delete, methods=["DELETE"], **openai_operations.RESPONSE_DELETED)
        add("/{response_id}/cancel", self.cancel, methods=["POST"], **openai_operations.RESPONSE_CANCELLED)
        add("/{response_id}/input_items", self.input_items, methods=["GET"], **openai_operations.INPUT_ITEMS)
        return router

    async def create(
        self,
        request: Request,
        idempotency_key: Annotated[
            str, Header(description="Requests with the same key and body start one run only, for 24 hours.")
        ] = "",
    ) -> Response:
        """Creates a response, compatible with OpenAI's API.

        With `background` the run continues on its own and can be read, resumed and cancelled later; otherwise it is
        cancelled when the client disconnects. Progress is reported as a reasoning item.
        """
        sent = await body(request)
        with use_caller(controllers.with_controller_policy(current(), sent.text("model"))):
            spec, options = await self.prepare(sent)
            if not options.background:
                spec.on_disconnect = ON_DISCONNECT_CANCEL
            start = self._adapter.start_background if options.background else self._adapter.start_owned
            source = await start(spec, options, idempotency_key)
        response_id = object_id(RESPONSE, source.run_id)
        headers = {"location": f"/v1/responses/{response_id}", "x-run-id": source.run_id, **warnings(sent)}
        projected = projection(spec, request_site(request))
        if sent.flag("stream"):
            return ResponseStream(source, projected, headers)
        if options.background:
            return json_response(await _first(source, projected), headers=headers)
        if not await read_until_end(source, projected.take, request.receive):
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return json_response(projected.response(), headers=headers)

    async def show(
        self,
        response_id: ResponseId,
        request: Request,
        stream: Annotated[bool, Query(description="Stream the events instead, to the last one.")] = False,
        starting_after: Annotated[
            int | None, Query(ge=-1, lt=2**63, description="Number of the last event received.")
        ] = None,
        last_event_id: LastEventId = "",
    ) -> Response:
        """Returns the present state of a response, or streams its events from the first or after a number."""
        run_id = _run_id(response_id)
        if last_event_id and not _NUMBER.fullmatch(last_event_id):
            refuse("Last-Event-ID", "is not a number", remedy="send the id of an event")
        if not stream:
            return json_response((await self._adapter.projection_of(run_id, request_site(request))).response())
        after = max(-1 if starting_after is None else starting_after, int(last_event_id or -1))
        run = await self._adapter.runs.get(run_id)
        source = WatchedRun(await self._adapter.runs.watch(run_id, 0))
        return ResponseStream(source, projection(run.spec, request_site(request)), {"x-run-id": run_id}, after)

    async def cancel(self, response_id: ResponseId, request: Request) -> Response:
        """Cancels a response; finished results are kept. No effect on an ended response."""
        run_id = _run_id(response_id)
        await self._adapter.runs.cancel(run_id)
        await wait_until_stopped(self._adapter.runs, run_id)
        return json_response((await self._adapter.projection_of(run_id, request_site(request))).response())

    async def delete(self, response_id: ResponseId) -> Response:
        """Deletes an ended response and its run."""
        await self._adapter.runs.delete(_run_id(response_id))
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def input_items(self, response_id: ResponseId, request: Request) -> Response:
        """Lists the input messages of a response, last one first."""
        run = await self._adapter.runs.get(_run_id(response_id))
        return json_response(list_input_items(run, request_site(request)))

    async def prepare(self, sent: Fields) -> tuple[RunSpec, RequestOptions]:
        """Converts the body of a request to a run.

        Raises:
            ServiceError: the request is invalid.
        """
        options = await asyncio.to_thread(_options, sent)
        return await self._spec(sent, options), options

    async def _spec(self, sent: Fields, options: RequestOptions) -> RunSpec:
        parent = await self._parent(sent)
        with use_caller(await self._adapter.runs.continuation_caller(parent)):
            spec = await messages.of_input(sent, self._adapter.parts)
        messages.instruct(spec, sent.text("instructions"))
        spec.parent_run_id = parent
        spec.answer_options.CopyFrom(answer_options(sent, options.form))
        return spec

    async def _parent(self, sent: Fields) -> str:
        """The run to continue; empty if there is none."""
        if "conversation" not in sent:
            return _run_id(sent.text("previous_response_id")) if "previous_response_id" in sent else ""
        if "previous_response_id" in sent:
            refuse("conversation", "cannot be combined with previous_response_id", remedy="send only one of them")
        given = sent.get("conversation")
        return await self._adapter.last_of(given if isinstance(given, str) else sent.map("conversation").text("id"))


def _options(sent: Fields) -> RequestOptions:
    model = controllers.require_controller(sent.text("model"))
    check_parameters(sent)
    background, store = bool(sent.flag("background")), sent.flag("store") is not False
    if background and not store:
        raise InvalidRequest(
            "a background response must be stored",
            remedy="leave out store or background",
            port="store",
        )
    form, metadata = response_format(sent), read_metadata(sent.map("metadata"))
    instructed = bool(sent.text("instructions"))
    return RequestOptions(
        model=model, instructed=instructed, form=form, background=background, store=store, metadata=metadata
    )


def _run_id(response_id: str) -> str:
    if not response_id.startswith(RESPONSE):
        raise NotFound(
            f"there is no response {response_id[:100]!r}",
            reason="RESPONSE",
            remedy=f"use an id that starts with {RESPONSE}",
        )
    return run_id_of(response_id)


async def _first(source: EventSource, projected: Projection) -> dict[str, object]:
    """The response after its first event."""
    event = await source.read()
    await source.close()
    if event is not None:
        projected.take(event)
    return projected.response()


def list_input_items(run: Run, site: str) -> dict[str, Any]:
    """Lists the messages of a run, last one first."""
    request = Turn(role=ROLE_USER, text=run.spec.request, attachments=run.spec.inputs)
    items = [_item(run.run_id, number, turn, site) for number, turn in enumerate([*run.spec.history, request])]
    items.reverse()
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"],
        "last_id": items[-1]["id"],
        "has_more": False,
    }


def _item(run_id: str, number: int, turn: Turn, site: str) -> dict[str, Any]:
    is_user = turn.role != ROLE_ASSISTANT
    text = {"type": "input_text" if is_user else "output_text", "text": turn.text}
    return {
        "id": f"{object_id(MESSAGE, run_id)}_{number}",
        "type": "message",
        "role": "user" if is_user else "assistant",
        "status": "completed",
        "content": [text | ({} if is_user else {"annotations": []}), *_files(turn.attachments, site)],
    }


def _files(attachments: Iterable[NamedValue], site: str) -> Iterable[dict[str, Any]]:
    for named_value in attachments:
        if named_value.value.HasField("artifact"):
            artifact = named_value.value.artifact
            yield {"type": "input_file", "filename": artifact.name, "file_url": artifact_url(artifact, site)}
