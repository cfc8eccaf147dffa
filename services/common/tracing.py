"""Distributed tracing with OpenTelemetry: set-up of the exporter, and helpers to create spans.

Tracing is on only where an OTLP endpoint is configured; elsewhere these functions do nothing and the OpenTelemetry SDK
is not imported. Spans carry error types but never error messages, because messages may contain user data.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING

import grpc
import structlog
from opentelemetry import context, trace
from opentelemetry.trace import INVALID_SPAN, INVALID_SPAN_CONTEXT, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from protos.hugginggpt.semantic_conventions import ERROR
from services.common.errors import ServiceError

if TYPE_CHECKING:
    from services.common.rpc_telemetry import RecordTracerProvider

log = structlog.get_logger(__name__)

Attributes = Mapping[str, str | int | float | bool]

HEADERS = ("traceparent", "tracestate")
"""Headers of the W3C Trace Context standard."""

SHUTDOWN_SECONDS = 2.0
"""Longest time a process spends sending remaining telemetry when it ends."""

_W3C = TraceContextTextMapPropagator()
_KEY = r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
_MEMBER = rf"{_KEY}=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]"
_TRACESTATE = re.compile(rf"{_MEMBER}(?:[ \t]*,[ \t]*{_MEMBER}){{0,31}}")
_TRACESTATE_CHARACTERS = 512
"""Longest tracestate that is propagated, the minimum that W3C requires. With 4 KiB, gRPC would reject the metadata."""


# ---------------------------------------------------------------- set-up


def setup(service: str, endpoint: str) -> None:
    """Starts to export this process's spans by OTLP over gRPC; further OTEL_ environment variables are honoured.

    Spans leave through a bounded queue and a thread of its own: with a slow or absent endpoint only spans are lost.

    Args:
        service: the service.name of the spans.
        endpoint: http://host:port; empty leaves tracing off.
    """
    if not endpoint:
        return
    try:
        # Imported only here because processes without tracing need neither the exporter nor the SDK.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        from services.common.rpc_telemetry import RecordTracerProvider  # noqa: PLC0415

        tracer_provider = RecordTracerProvider(
            resource=Resource.create({"service.name": service}), shutdown_on_exit=False
        )
        tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    except ImportError as error:
        remedy = "pip install 'hugginggpt[telemetry]', or unset OTEL_EXPORTER_OTLP_ENDPOINT"
        log.error("trace export is off: the exporter is not installed", missing=error.name, remedy=remedy)  # noqa: TRY400  # the traceback adds nothing
    except (RuntimeError, ValueError) as error:
        log.error("trace export is off: invalid settings", error=str(error), remedy="correct the OTEL_ variables")  # noqa: TRY400  # the traceback adds nothing
    else:
        trace.set_tracer_provider(tracer_provider)
        log.info("exporting traces", endpoint=endpoint)


def shutdown() -> None:
    """Exports the remaining spans, for at most SHUTDOWN_SECONDS."""
    if tracer_provider := provider():
        run_for_limited_time(tracer_provider.shutdown)


def run_for_limited_time(function: Callable[[], object]) -> None:
    """Calls a function in a thread and returns when it has ended, or after SHUTDOWN_SECONDS."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(SHUTDOWN_SECONDS)


def provider() -> "RecordTracerProvider | None":
    """The tracer provider of this process; None if tracing is off."""
    current = trace.get_tracer_provider()
    if isinstance(current, trace.ProxyTracerProvider):
        return None
    from services.common.rpc_telemetry import RecordTracerProvider  # noqa: PLC0415  # loads the SDK

    return current if isinstance(current, RecordTracerProvider) else None


def instrument_channel(channel: grpc.aio.Channel) -> grpc.aio.Channel:
    """A channel that creates spans for its calls and propagates the trace; the same channel if tracing is off."""
    if not (tracer_provider := provider()):
        return channel
    from services.common.rpc_telemetry import TracedChannel  # noqa: PLC0415  # loads the SDK

    return TracedChannel(channel, tracer_provider)


# ---------------------------------------------------------------- spans


def create_span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Sequence[SpanContext] = (),
) -> Span:
    """Starts a span without making it the current span; see `use_span`.

    Args:
        name: of the span.
        attributes: those known at the start, which samplers see.
        kind: OpenTelemetry's span kind.
        links: spans to which the new span is linked.
    """
    if not (tracer_provider := provider()):
        return INVALID_SPAN
    return _tracer(tracer_provider).start_span(
        name, kind=kind, attributes=attributes, links=[trace.Link(link) for link in links]
    )


@contextmanager
def use_span(span: Span, *, end: bool = True) -> Iterator[Span]:
    """Makes a span the current span within the block, and ends it after the block.

    Args:
        span: from `create_span`.
        end: False: it does not end after the block, unless that fails.
    """
    if span is INVALID_SPAN:
        yield span
        return
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        set_error(span, error_type(error))
        end = True
        raise
    finally:
        context.detach(token)
        if end:
            span.end()


def start_span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Sequence[SpanContext] = (),
) -> AbstractContextManager[Span]:
    """Creates a span that lasts for the block and is the current span within it; arguments as of `create_span`."""
    return use_span(create_span(name, attributes, kind=kind, links=links))


@contextmanager
def use_parent(parent: SpanContext) -> Iterator[None]:
    """Makes a remote span the current span within the block; an invalid one leaves the current span as it is."""
    if not parent.is_valid:
        yield
        return
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    try:
        yield
    finally:
        context.detach(token)


def current_span_context() -> SpanContext:
    """The context of the current span."""
    return trace.get_current_span().get_span_context()


def add_event(name: str, attributes: Attributes) -> None:
    """Adds an event to the current span, if that is recorded."""
    if (span := trace.get_current_span()).is_recording():
        span.add_event(name, attributes)


def set_error(span: Span, type_: str) -> None:
    """Marks a span as failed with an error type."""
    span.set_attribute(ERROR, type_)
    span.set_status(Status(StatusCode.ERROR))


def error_type(error: BaseException) -> str:
    """The error.type attribute of an exception: a ServiceError's reason, CANCELLED, or the exception's class."""
    if isinstance(error, ServiceError):
        return error.reason
    return "CANCELLED" if isinstance(error, asyncio.CancelledError) else type(error).__name__


# ---------------------------------------------------------------- propagation


def extract(headers: Mapping[str, str]) -> SpanContext:
    """The span context in W3C headers; an invalid context if they contain none.

    A tracestate that is malformed or too long is dropped, because tracing backends would log arbitrary client input.
    """
    state = headers.get("tracestate", "")
    if state and not (len(state) <= _TRACESTATE_CHARACTERS and _TRACESTATE.fullmatch(state)):
        headers = {"traceparent": headers.get("traceparent", "")}
    found = _W3C.extract(headers, context.Context())
    return trace.get_current_span(found).get_span_context() if found else INVALID_SPAN_CONTEXT


def traceparent(span: SpanContext) -> str:
    """The W3C traceparent header of a span context."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


@cache
def _tracer(tracer_provider: "RecordTracerProvider") -> trace.Tracer:
    return tracer_provider.get_tracer("hugginggpt")
