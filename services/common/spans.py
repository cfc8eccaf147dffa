"""Spans of what is done, beside those of calls; where nothing is traced they cost nothing.

What a span says of an error is what kind it is, never its words: these may be a user's.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from opentelemetry import context, trace
from opentelemetry.trace import INVALID_SPAN, INVALID_SPAN_CONTEXT, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.common import tracing
from services.common.errors import ServiceError
from services.common.semantic_conventions import ERROR

if TYPE_CHECKING:
    from services.common.rpc_telemetry import Traces

Attributes = Mapping[str, str | int | float | bool]

HEADERS = ("traceparent", "tracestate")
"""Which name a span, as W3C has it."""

_W3C = TraceContextTextMapPropagator()
_KEY = r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
_MEMBER = rf"{_KEY}=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]"
_STATE = re.compile(rf"{_MEMBER}(?:[ \t]*,[ \t]*{_MEMBER}){{0,31}}")
_LONGEST_STATE = 512
"""As W3C wants it passed on at least; with eight times that gRPC refuses calls."""


@contextmanager
def doing(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    members: Sequence[SpanContext] = (),
) -> Iterator[Span]:
    """A span for as long as the block lasts, and the current one within it.

    Args:
        name: the span's.
        attributes: known from its beginning, by which a sampler may choose.
        kind: who waits for whom.
        members: spans it is linked to.
    """
    if not (traces := tracing.current()):
        yield INVALID_SPAN
        return
    links = [trace.Link(member) for member in members]
    span = _tracer(traces).start_span(name, kind=kind, attributes=attributes, links=links)
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        failed(span, kind_of(error))
        raise
    finally:
        context.detach(token)
        span.end()


@contextmanager
def within(parent: SpanContext) -> Iterator[None]:
    """What is done in the block belongs to a span that was begun elsewhere; to the current one if there is no such."""
    if not parent.is_valid:
        yield
        return
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    try:
        yield
    finally:
        context.detach(token)


def current() -> SpanContext:
    """The span to which belongs what is done now."""
    return trace.get_current_span().get_span_context()


def event(name: str, attributes: Attributes) -> None:
    """Something happened in the current span."""
    if (span := trace.get_current_span()).is_recording():
        span.add_event(name, attributes)


def failed(span: Span, what: str) -> None:
    """It came to nothing, for that kind of reason."""
    span.set_attribute(ERROR, what)
    span.set_status(Status(StatusCode.ERROR))


def kind_of(error: BaseException) -> str:
    if isinstance(error, ServiceError):
        return error.reason
    return "CANCELLED" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def read(headers: Mapping[str, str]) -> SpanContext:
    """The span that headers name as W3C has it; none if they name none.

    A tracestate that is long, or not as it should be, is left out: who reads it would log what somebody wrote.
    """
    state = headers.get("tracestate", "")
    if state and not (len(state) <= _LONGEST_STATE and _STATE.fullmatch(state)):
        headers = {"traceparent": headers.get("traceparent", "")}
    found = _W3C.extract(headers, context.Context())
    return trace.get_current_span(found).get_span_context() if found else INVALID_SPAN_CONTEXT


def written(span: SpanContext) -> str:
    """A span's name as W3C has it."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


@cache
def _tracer(traces: "Traces") -> trace.Tracer:
    return traces.get_tracer("hugginggpt")
