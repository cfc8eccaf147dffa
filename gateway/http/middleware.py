"""Where HTTP comes in: every request gets a caller and an id, every answer its headers, every error its body."""

from collections.abc import Sequence

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth.caller import Callers
from gateway.http.problem import MEDIA_TYPE, http_status, problem_bytes, problem_headers
from gateway.http.telemetry import Request, observed
from services.common.call_context import use_caller
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)

_HEADERS: Sequence[tuple[str, str]] = (
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "SAMEORIGIN"),
)


_BUG = ServiceError("internal error", remedy="try again; the gateway's log says more under this request's id")


def problem_response(error: Exception, path: str) -> Response:
    """What a client is told of an error: all of an expected one, nothing of a bug."""
    known = error if isinstance(error, ServiceError) else _BUG
    return Response(problem_bytes(known, path), http_status(known), problem_headers(known), MEDIA_TYPE)


class Door:
    """The outermost layer; says in the log what was asked for by its route, never by its content.

    Args:
        app: what answers.
        callers: who asks.
        tls_in_front: clients came by https, though the request did not.
    """

    def __init__(self, app: ASGIApp, callers: Callers, *, tls_in_front: bool = False) -> None:
        self._app = app
        self._callers = callers
        self._schemes = {"scheme": "https"} if tls_in_front else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.update(self._schemes)
        who = self._callers.caller(Headers(scope=scope).get("x-request-id", ""))
        with use_caller(who), observed(scope) as request:
            answer = _Answer(send, who.request_id, request)
            try:
                await self._app(scope, receive, answer)
            except Exception as error:  # nobody else would answer
                if not isinstance(error, ServiceError):
                    log.exception("unexpected error")
                if not request.status:
                    await problem_response(error, scope["path"])(scope, receive, answer)
            finally:
                told = {"run_id": run_id} if (run_id := answer.run_id or request.run_id) else {}
                seconds = round(request.seconds, 4)
                log.info(
                    "request",
                    method=scope["method"],
                    route=request.route,
                    status=request.status,
                    seconds=seconds,
                    **told,
                )


class _Answer:
    def __init__(self, send: Send, request_id: str, request: Request) -> None:
        self._send = send
        self._request_id = request_id
        self._request = request
        self.run_id = ""
        """The run that it began."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._request.status = message["status"]
            headers = MutableHeaders(scope=message)
            self.run_id = headers.get("x-run-id", "")
            headers["x-request-id"] = self._request_id
            if trace_id := self._request.trace_id:
                headers["x-trace-id"] = trace_id
            for name, value in _HEADERS:
                headers.setdefault(name, value)
        await self._send(message)
