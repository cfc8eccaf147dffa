"""Outermost HTTP middleware: request id, caller, response headers, error bodies and the access log."""

from collections.abc import Sequence

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth.identity import CallerFactory
from gateway.http.connection import response_sent
from gateway.http.problem import problem_response
from gateway.http.telemetry import Request, observe_request
from services.common.call_context import use_caller
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)

_HEADERS: Sequence[tuple[str, str]] = (
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "SAMEORIGIN"),
)


class RequestContextMiddleware:
    """Sets the call context of each request, and logs the request by its route, without content.

    Args:
        app: the next ASGI application.
        callers: creates the caller of each request.
        tls_in_front: a proxy terminates TLS, so the scheme is https although the request arrived by http.
    """

    def __init__(self, app: ASGIApp, callers: CallerFactory, *, tls_in_front: bool = False) -> None:
        self._app = app
        self._callers = callers
        self._schemes = {"scheme": "https"} if tls_in_front else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.update(self._schemes)
        caller = self._callers.create(Headers(scope=scope).get("x-request-id", ""))
        with use_caller(caller), observe_request(scope) as request:
            response = _TrackedResponse(send, caller.request_id, request)
            try:
                await self._app(scope, receive, response)
            except Exception as error:  # the outermost layer: no other handler follows
                if not isinstance(error, ServiceError):
                    log.exception("unexpected error")
                if not request.status:
                    await problem_response(error, scope["path"])(scope, receive, response)
            finally:
                run_field = {"run_id": run_id} if (run_id := response.run_id or request.run_id) else {}
                seconds = round(request.seconds, 4)
                log.info(
                    "request",
                    method=scope["method"],
                    route=request.route,
                    status=request.status,
                    seconds=seconds,
                    **run_field,
                )


class _TrackedResponse:
    def __init__(self, send: Send, request_id: str, request: Request) -> None:
        self._send = send
        self._request_id = request_id
        self._request = request
        self.run_id = ""
        """Id of the run that the request started; empty if none."""

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
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            response_sent()
