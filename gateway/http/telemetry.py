"""HTTP requests as traces and metrics see them: by their route, never by their content."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry import metrics
from opentelemetry.trace import SpanKind, format_trace_id
from starlette.datastructures import Headers
from starlette.types import Scope

from services.common import semantic_conventions as names
from services.common import tracing

_SECONDS = metrics.get_meter("hugginggpt.gateway").create_histogram(
    names.HTTP_SECONDS, unit="s", description="HTTP requests answered, by method, route and status."
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_OTHER = "_OTHER"
_RUN_ID = re.compile(r"run_[0-9a-f]{1,64}")
_UNTRACED = ("/healthz", "/readyz")
_SERVER_ERROR = 500


@dataclass
class Request:
    """One request under way."""

    scope: Scope
    status: int = 0
    """Of the answer; 0: none was sent."""
    trace_id: str = ""
    """Under which it is found where traces are sent; empty: it is not."""
    began: float = field(default_factory=time.perf_counter)

    @property
    def method(self) -> str:
        method: str = self.scope["method"]
        return method if method in _METHODS else _OTHER

    @property
    def route(self) -> str:
        """As the application has it, with names in place of ids; empty for a path that leads nowhere."""
        return getattr(self.scope.get("route"), "path", "")

    @property
    def run_id(self) -> str:
        """The run that the path names, if that looks like one."""
        return run_named(str(self.scope.get("path_params", {}).get("run_id", "")))

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began


def run_named(name: str) -> str:
    """The name, if it looks like a run's."""
    return name if _RUN_ID.fullmatch(name) else ""


@contextmanager
def observed(scope: Scope) -> Iterator[Request]:
    """A request's span, beneath the one that its headers name; counted once it is answered."""
    request = Request(scope)
    if scope["path"] in _UNTRACED:
        yield request
        return
    parent, facts = tracing.extract(_trace(scope)), {names.METHOD: request.method}
    with tracing.use_parent(parent), tracing.start_span(request.method, facts, kind=SpanKind.SERVER) as span:
        if span.is_recording():
            request.trace_id = format_trace_id(span.get_span_context().trace_id)
        try:
            yield request
        finally:
            answered: tracing.Attributes = {names.ROUTE: request.route, names.STATUS: request.status}
            _SECONDS.record(request.seconds, {**facts, **answered})
            if span.is_recording():
                span.update_name(names.span_name(request.method, request.route))
                span.set_attributes(answered)
            if request.status >= _SERVER_ERROR:
                tracing.set_error(span, str(request.status))


def _trace(scope: Scope) -> dict[str, str]:
    headers = Headers(scope=scope)
    return {name: headers[name] for name in tracing.HEADERS if name in headers}
