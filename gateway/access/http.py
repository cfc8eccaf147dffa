"""HTTP requests, each with the identity its key proves."""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.access.bearer import token
from gateway.access.caller import Callers
from gateway.access.gate import Gate
from gateway.access.identity import identified_as
from gateway.door import problem_response
from services.runtime.caller import acting_for, current
from services.runtime.errors import ServiceError

PUBLIC = re.compile(r"/|/(healthz|readyz|openapi\.json|docs(/.*)?)")
"""Paths that say nothing of anybody: they need no key."""


class Identified:
    """Serves each request as whoever its key belongs to; answers those without one itself.

    So that what it answers passes through the layers before it, as every answer does.
    """

    def __init__(self, app: ASGIApp, gate: Gate, callers: Callers) -> None:
        self._app = app
        self._gate = gate
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if PUBLIC.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            sent = token(Headers(scope=scope).get("authorization", ""))
            who = await self._gate.identity(sent, (scope.get("client") or ("", 0))[0])
        except ServiceError as error:
            await problem_response(error, scope["path"])(scope, receive, send)
            return
        with identified_as(who), acting_for(self._callers.caller(current().request_id)):
            await self._app(scope, receive, send)
