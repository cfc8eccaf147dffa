"""Outermost HTTP middleware: request id, caller, trace, metrics, response headers, error bodies and the access log."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog
from opentelemetry import metrics
from opentelemetry.trace import SpanKind, format_trace_id
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.auth.identity import CallerFactory
from gateway.core.runs import valid_run_id
from gateway.http.connection import response_sent
from gateway.http.problem import problem_response
from protos.hugginggpt import semantic_conventions as names
from services.common import tracing
from services.common.call_context import use_caller
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)

_HEADERS: Sequence[tuple[str, str]] = (
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "SAMEORIGIN"),
)


_SECONDS = metrics.get_meter("hugginggpt.gateway").create_histogram(
    names.HTTP_SECONDS, unit="s", description="HTTP requests answered, by method, route and status."
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_OTHER = "_OTHER"
_UNTRACED = ("/healthz", "/readyz")
_SERVER_ERROR = 500


@dataclass
class ObservedRequest:
    """An HTTP request in progress."""

    scope: Scope
    status: int = 0
    """Status of the response; 0 if none was sent."""
    trace_id: str = ""
    """Trace id, if the request is traced; else empty."""
    started: float = field(default_factory=time.perf_counter)

    @property
    def method(self) -> str:
        method: str = self.scope["method"]
        return method if method in _METHODS else _OTHER

    @property
    def route(self) -> str:
        """Path template of the matched route; empty if no route matches."""
        return getattr(self.scope.get("route"), "path", "")

    @property
    def run_id(self) -> str:
        """Run id of the path, if it is well formed; else empty."""
        return valid_run_id(str(self.scope.get("path_params", {}).get("run_id", "")))

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started


@contextmanager
def observe_request(scope: Scope) -> Iterator[ObservedRequest]:
    """Opens the request's span below the caller's trace context, and records its duration when it ends."""
    request = ObservedRequest(scope)
    if scope["path"] in _UNTRACED:
        yield request
        return
    parent, attributes = tracing.extract(_trace(scope)), {names.METHOD: request.method}
    with tracing.use_parent(parent), tracing.start_span(request.method, attributes, kind=SpanKind.SERVER) as span:
        if span.is_recording():
            request.trace_id = format_trace_id(span.get_span_context().trace_id)
        try:
            yield request
        finally:
            response_attributes: tracing.Attributes = {names.ROUTE: request.route, names.STATUS: request.status}
            _SECONDS.record(request.seconds, {**attributes, **response_attributes})
            if span.is_recording():
                span.update_name(names.span_name(request.method, request.route))
                span.set_attributes(response_attributes)
            if request.status >= _SERVER_ERROR:
                tracing.set_error(span, str(request.status))


def _trace(scope: Scope) -> dict[str, str]:
    headers = Headers(scope=scope)
    return {name: headers[name] for name in tracing.HEADERS if name in headers}


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
    def __init__(self, send: Send, request_id: str, request: ObservedRequest) -> None:
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
