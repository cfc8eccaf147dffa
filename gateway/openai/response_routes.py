"""/v1/responses."""

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from gateway.http.run_routes import LastEventId, json_response
from gateway.json_text import refuse
from gateway.openai import controllers, conversation_input, input_items, links, response_format, unsupported_parameters
from gateway.openai.chat_routes import LEFT
from gateway.openai.ids import RESPONSE, named, run_of
from gateway.openai.json_fields import Fields
from gateway.openai.owned_run_stream import Source, Watched, followed, stopped
from gateway.openai.request_body import body
from gateway.openai.request_options import Terms
from gateway.openai.response_projection import Projection, projection
from gateway.openai.run_adapter import House
from gateway.openai.streams import ResponseStream
from gateway.openapi import openai_operations
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, RunSpec
from services.common.call_context import current, use_caller
from services.common.errors import InvalidRequest, NotFound

METADATA_ENTRIES, METADATA_KEY, METADATA_VALUE = 16, 64, 512
"""Most of a response's metadata: entries, and characters of each."""

_NUMBER = re.compile(r"[0-9]{1,18}")

ResponseId = Annotated[str, Path(description="The response's id.", examples=["resp_19a2b3c4d5e6f708192a3b4"])]


class ResponseRoutes:
    """Responses, each a run: any gateway can tell of any."""

    def __init__(self, house: House) -> None:
        self._house = house

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
        idempotency_key: Annotated[str, Header(description="Same key, same request: same run, for 24 h.")] = "",
    ) -> Response:
        """Answers an input, as OpenAI's clients ask for it.

        With `background` the run goes on by itself, to be looked at, resumed and cancelled later; else it ends when the
        client leaves. How the work goes is told as a reasoning item.
        """
        sent = await body(request)
        terms = await asyncio.to_thread(_terms, sent)
        with use_caller(controllers.on_behalf_of(current(), terms.model)):
            spec = await self._spec(sent, terms)
            start = self._house.background if terms.background else self._house.attended
            source = await start(spec, terms, idempotency_key)
        response_id = named(RESPONSE, source.run_id)
        headers = {"location": f"/v1/responses/{response_id}", "x-run-id": source.run_id}
        told = projection(spec, links.site(request))
        if sent.flag("stream"):
            return ResponseStream(source, told, headers)
        if terms.background:
            return json_response(await _first(source, told), headers=headers)
        if not await followed(source, told.take, request.receive):
            return Response(status_code=LEFT)
        return json_response(told.response(), headers=headers)

    async def show(
        self,
        response_id: ResponseId,
        request: Request,
        stream: Annotated[bool, Query(description="Its events, to the last one, instead.")] = False,
        starting_after: Annotated[int | None, Query(ge=-1, lt=2**63, description="The last number seen.")] = None,
        last_event_id: LastEventId = "",
    ) -> Response:
        """A response as it stands, or its events from the first or after a number."""
        run_id = _run_of(response_id)
        if last_event_id and not _NUMBER.fullmatch(last_event_id):
            refuse("Last-Event-ID", "is not a number", remedy="send the id of an event")
        if not stream:
            return json_response((await self._house.told(run_id, links.site(request))).response())
        after = max(-1 if starting_after is None else starting_after, int(last_event_id or -1))
        run = await self._house.runs.get(run_id)
        source = Watched(await self._house.runs.watch(run_id, 0))
        return ResponseStream(source, projection(run.spec, links.site(request)), {"x-run-id": run_id}, after)

    async def cancel(self, response_id: ResponseId, request: Request) -> Response:
        """Stops a response; what has finished is kept. No effect on one that has ended."""
        run_id = _run_of(response_id)
        await self._house.runs.cancel(run_id)
        await stopped(self._house.runs, run_id)
        return json_response((await self._house.told(run_id, links.site(request))).response())

    async def delete(self, response_id: ResponseId) -> Response:
        """Removes an ended response, and its run."""
        await self._house.runs.delete(_run_of(response_id))
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def input_items(self, response_id: ResponseId, request: Request) -> Response:
        """What a response was asked, the last message first."""
        run = await self._house.runs.get(_run_of(response_id))
        return json_response(input_items.listed(run, links.site(request)))

    async def _spec(self, sent: Fields, terms: Terms) -> RunSpec:
        parent = await self._parent(sent)
        with use_caller(await self._house.runs.continuation_caller(parent)):
            spec = await conversation_input.of_input(sent, self._house.parts)
        conversation_input.instruct(spec, sent.text("instructions"))
        spec.parent_run_id = parent
        if not terms.background:
            spec.on_disconnect = ON_DISCONNECT_CANCEL
        return spec

    async def _parent(self, sent: Fields) -> str:
        """The run that is continued; empty if none is."""
        if "conversation" not in sent:
            return _run_of(sent.text("previous_response_id")) if "previous_response_id" in sent else ""
        if "previous_response_id" in sent:
            refuse("conversation", "stands beside previous_response_id", remedy="send one of them")
        given = sent.get("conversation")
        return await self._house.last_of(given if isinstance(given, str) else sent.map("conversation").text("id"))


def _terms(sent: Fields) -> Terms:
    model = controllers.checked(sent.text("model"))
    unsupported_parameters.check(sent)
    background, store = bool(sent.flag("background")), sent.flag("store") is not False
    if background and not store:
        raise InvalidRequest(
            "a response in the background is looked at later, so it is stored",
            remedy="leave out store, or background",
            port="store",
        )
    form, metadata = response_format.of_response(sent), _metadata(sent.map("metadata"))
    instructed = bool(sent.text("instructions"))
    return Terms(model=model, instructed=instructed, form=form, background=background, store=store, metadata=metadata)


def _metadata(sent: Fields) -> dict[str, str]:
    found = {key: sent.text(key) for key in sent}
    too_long = any(len(key) > METADATA_KEY or len(text) > METADATA_VALUE for key, text in found.items())
    if len(found) > METADATA_ENTRIES or too_long:
        remedy = (
            f"send up to {METADATA_ENTRIES} entries, names of {METADATA_KEY} and texts of {METADATA_VALUE} characters"
        )
        refuse("metadata", "is too large", remedy=remedy)
    return found


def _run_of(response_id: str) -> str:
    if not response_id.startswith(RESPONSE):
        raise NotFound(
            f"there is no response {response_id[:100]!r}", reason="RESPONSE", remedy=f"use an id that begins {RESPONSE}"
        )
    return run_of(response_id)


async def _first(source: Source, told: Projection) -> dict[str, object]:
    """The response as it was accepted."""
    event = await source.read()
    await source.close()
    if event is not None:
        told.take(event)
    return told.response()
