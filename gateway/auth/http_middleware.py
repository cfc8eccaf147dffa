"""HTTP requests, each with the identity its key proves, held to its limits."""

import re
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth.authenticator import Gate
from gateway.auth.bearer import token
from gateway.auth.caller import Callers
from gateway.auth.identity import Identity, identified_as
from gateway.auth.session_revocation import Presence
from gateway.auth.signed_links import Links, signing_with
from gateway.http.middleware import problem_response
from gateway.http.sse import MEDIA_TYPE as EVENT_STREAM
from gateway.limits.quotas import Meter, Quotas
from gateway.limits.request_bytes import metered_by
from services.common.call_context import current, use_caller
from services.common.errors import ServiceError, Unauthenticated

PUBLIC = re.compile(r"/|/(healthz|readyz|openapi\.json|(docs|web)(/.*)?|mcp/uploads/[\w-]+)")
"""Paths that need no key: they say nothing of anybody, or their last part is as good as one."""


class Identified:
    """Serves each request as whoever its key belongs to; answers those without one itself.

    So that what it answers passes through the layers before it, as every answer does.
    """

    def __init__(
        self, app: ASGIApp, gate: Gate, links: Links, callers: Callers, *, quotas: Quotas, presence: Presence
    ) -> None:
        self._app = app
        self._gate = gate
        self._links = links
        self._callers = callers
        self._quotas = quotas
        self._presence = presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if PUBLIC.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            who = self._links.holder(scope) or await self._shown(scope)
            standing = await self._quotas.request(who)
            told = _telling(send, standing.headers())
        except ServiceError as error:
            await problem_response(error, scope["path"])(scope, receive, send)
            return
        try:
            standing.check()
        except ServiceError as error:
            await problem_response(error, scope["path"])(scope, receive, told)
            return
        await self._serve(who, scope, receive, told)

    async def _shown(self, scope: Scope) -> Identity:
        sent = token(Headers(scope=scope).get("authorization", ""))
        return await self._gate.identity(sent, (scope.get("client") or ("", 0))[0])

    async def _serve(self, who: Identity, scope: Scope, receive: Receive, send: Send) -> None:
        meter = self._quotas.meter(who)
        answer = _Answer(send)
        with (
            identified_as(who),
            signing_with(self._links),
            metered_by(meter),
            use_caller(self._callers.caller(current().request_id)),
        ):
            try:
                async with self._presence.of(who):
                    await self._app(scope, _metered(receive, meter) if meter else receive, answer)
            except Unauthenticated as error:
                await answer.end(problem_response(error, scope["path"]), scope, receive)
            finally:
                if meter:
                    await meter.settle()


class _Answer:
    """What has been sent, so that it can be ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
        await self._send(message)

    async def end(self, refusal: Response, scope: Scope, receive: Receive) -> None:
        """Refuses, if nothing has been sent; ends a stream of events; leaves broken off what has an end of its own."""
        if self._head is None:
            await refusal(scope, receive, self._send)
        elif MutableHeaders(scope=self._head).get("content-type", "").startswith(EVENT_STREAM):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _telling(send: Send, headers: Mapping[str, str]) -> Send:
    if not headers:
        return send

    async def telling(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return telling


def _metered(receive: Receive, meter: Meter) -> Receive:
    async def metered() -> Message:
        message = await receive()
        if body := message.get("body"):
            await meter.take(len(body))
        return message

    return metered
