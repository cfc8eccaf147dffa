"""Traces and metrics of HTTP requests: by route, without content."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry import metrics
from opentelemetry.trace import SpanKind, format_trace_id
from starlette.datastructures import Headers
from starlette.types import Scope

from gateway.core.runs import valid_run_id
from protos.hugginggpt import semantic_conventions as names
from services.common import tracing

_SECONDS = metrics.get_meter("hugginggpt.gateway").create_histogram(
    names.HTTP_SECONDS, unit="s", description="HTTP requests answered, by method, route and status."
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_OTHER = "_OTHER"
_UNTRACED = ("/healthz", "/readyz")
_SERVER_ERROR = 500


@dataclass
class Request:
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
def observe_request(scope: Scope) -> Iterator[Request]:
    """Opens the request's span below the caller's trace context, and records its duration when it ends."""
    request = Request(scope)
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
