"""Spans and metrics of RPCs at both ends, in OpenTelemetry's names; imported only where tracing or metrics are on.

Differences from OpenTelemetry's gRPC instrumentation, and their reasons:
- No client interceptors: they add an asyncio task per call, and a stream that its reader abandons would live until the
  next garbage collection.
- No open span during a call: only its context travels, and the span is written once, when the call has ended. That
  takes a third of the time of starting and ending a span object.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cache
from typing import Any, Self

import grpc
from grpc import StatusCode
from opentelemetry import context, metrics, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, TraceFlags

from protos.hugginggpt import semantic_conventions as names
from services.common import tracing

_IDS = RandomIdGenerator()
_DURATION = metrics.get_meter("hugginggpt.rpc").create_histogram(
    names.RPC_SECONDS, unit="s", description="Duration of answered calls, by method and status."
)
_SCOPE = InstrumentationScope("hugginggpt.rpc")
_UNSET, _ERROR = Status(), Status(trace.StatusCode.ERROR)
_DEADLINE_TOLERANCE_SECONDS = 0.01
"""A call cancelled so shortly before its deadline exceeded it: the client's clock may run slightly ahead."""

_SERVER_ERRORS = frozenset(
    {
        StatusCode.UNKNOWN,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.UNIMPLEMENTED,
        StatusCode.INTERNAL,
        StatusCode.UNAVAILABLE,
        StatusCode.DATA_LOSS,
    }
)
_ERRORS = {SpanKind.CLIENT: frozenset(StatusCode) - {StatusCode.OK}, SpanKind.SERVER: _SERVER_ERRORS}
"""Status codes that make a span an error, per OpenTelemetry's conventions for RPCs."""


class RecordTracerProvider(TracerProvider):
    """Tracer provider that also accepts finished spans created as records."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._processors: list[SpanProcessor] = []

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        super().add_span_processor(span_processor)
        self._processors.append(span_processor)

    def write(self, span: ReadableSpan) -> None:
        """Passes a finished span to the span processors."""
        for processor in self._processors:
            processor.on_end(span)


def new_span_context(
    tracer_provider: RecordTracerProvider, kind: SpanKind, name: str, parent: SpanContext
) -> SpanContext:
    """Context of a new span: in the parent's trace and sampled like it; without a parent, in a new trace."""
    if parent.is_valid:
        return SpanContext(parent.trace_id, _IDS.generate_span_id(), False, parent.trace_flags, parent.trace_state)
    trace_id = _IDS.generate_trace_id()
    sampled = tracer_provider.sampler.should_sample(None, trace_id, name, kind).decision is Decision.RECORD_AND_SAMPLE
    flags = TraceFlags(sampled)
    return SpanContext(trace_id, _IDS.generate_span_id(), is_remote=False, trace_flags=flags)


class _CallRecord:
    """Span and duration of one call, written when it ends."""

    __slots__ = ("_kind", "_method", "_parent", "_provider", "_started", "_started_ns", "context")

    def __init__(
        self, tracer_provider: RecordTracerProvider | None, kind: SpanKind, method: str, parent: SpanContext
    ) -> None:
        self._provider, self._kind, self._method, self._parent = tracer_provider, kind, method, parent
        self.context = (
            new_span_context(tracer_provider, kind, method, parent) if tracer_provider else trace.INVALID_SPAN_CONTEXT
        )
        self._started_ns, self._started = time.time_ns(), time.monotonic_ns()

    def end(self, code: StatusCode) -> None:
        """Writes the span and, at a server, the duration; without the error's message, which may contain user data."""
        elapsed = time.monotonic_ns() - self._started
        if self._kind is SpanKind.SERVER:
            _DURATION.record(elapsed / 1e9, _attributes(self._method, code))
        if self._provider and self.context.trace_flags & TraceFlags.SAMPLED:
            is_error = code in _ERRORS[self._kind]
            self._provider.write(
                ReadableSpan(
                    self._method,
                    self.context,
                    self._parent if self._parent.is_valid else None,
                    self._provider.resource,
                    _attributes(self._method, code, is_error=is_error),
                    kind=self._kind,
                    status=_ERROR if is_error else _UNSET,
                    start_time=self._started_ns,
                    end_time=self._started_ns + elapsed,
                    instrumentation_scope=_SCOPE,
                )
            )


@cache
def _attributes(method: str, code: StatusCode, *, is_error: bool = False) -> Mapping[str, str]:
    attributes = {"rpc.system.name": "grpc", "rpc.method": method, "rpc.response.status_code": code.name}
    return attributes | {names.ERROR: code.name} if is_error else attributes


# ---------------------------------------------------------------- client


class TracedChannel(grpc.aio.Channel):
    """A channel that creates spans for its unary and server-streaming calls and propagates the trace to the server.

    Args:
        channel: makes the calls.
        tracer_provider: takes the spans.
    """

    def __init__(self, channel: grpc.aio.Channel, tracer_provider: RecordTracerProvider) -> None:
        self._channel, self._provider = channel, tracer_provider

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # as in gRPC
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def unary_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self._traced(method, self._channel.unary_unary(method, *arguments, **options))

    def unary_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        make_call = self._traced(method, self._channel.unary_stream(method, *arguments, **options))
        return lambda *given, **named: _Stream(make_call(*given, **named))

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._channel.stream_unary(*arguments, **options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._channel.stream_stream(*arguments, **options)

    def _traced(self, method: str, make_call: Callable[..., Any]) -> Callable[..., Any]:
        if method.startswith("/grpc."):
            return make_call

        def call(request: Any, *, metadata: Any = None, **options: Any) -> Any:
            record = _CallRecord(self._provider, SpanKind.CLIENT, method[1:], tracing.current_span_context())
            made = make_call(request, metadata=(*(metadata or ()), *_headers(record.context)), **options)
            made.add_done_callback(lambda ended: record.end(_status_of(ended)))
            return made

        return call


def _headers(span: SpanContext) -> Iterator[tuple[str, str]]:
    """W3C headers of a span context."""
    yield "traceparent", tracing.traceparent(span)
    if span.trace_state:
        yield "tracestate", span.trace_state.to_header()


def _status_of(ended: Any) -> StatusCode:
    """Status code of an ended call; code() is a coroutine only because it would wait for the end."""
    try:
        ended.code().send(None)
    except StopIteration as result:
        code: StatusCode = result.value
        return code
    return StatusCode.UNKNOWN


class _Stream:
    """A server-streaming call that is cancelled as soon as its reader abandons it.

    gRPC's own call is part of a reference cycle, so that an abandoned one would live until a garbage collection.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._messages: AsyncIterator[Any] | None = None
        self._cancel_when_dropped = weakref.finalize(self, call.cancel)
        self._cancel_when_dropped.atexit = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._messages is None:
            self._cancel_when_dropped.detach()  # a loop holds only the iterator
            self._messages = _messages(self._call)
        return self._messages


async def _messages(call: Any) -> AsyncIterator[Any]:
    try:
        async for message in call:
            yield message
    finally:
        call.cancel()  # has no effect on a call that has ended


# ---------------------------------------------------------------- server


class TelemetryInterceptor(grpc.aio.ServerInterceptor):
    """Measures and traces incoming calls; a call's span is the current one in its handler. Must be the outermost.

    Args:
        tracer_provider: takes the spans; None measures only.
    """

    def __init__(self, tracer_provider: RecordTracerProvider | None) -> None:
        self._provider = tracer_provider

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        for kind in ("unary_unary", "unary_stream", "stream_unary"):
            if answer := getattr(handler, kind):
                return handler._replace(**{kind: self._recorded(method[1:], answer)})
        return handler

    def _recorded(self, method: str, answer: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, call_context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            record = _CallRecord(self._provider, SpanKind.SERVER, method, _parent(call_context))
            token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(record.context)))
            try:
                reply = await answer(request, call_context)
            except BaseException as error:
                record.end(_status(error, call_context))
                raise
            finally:
                context.detach(token)
            record.end(_status(None, call_context))
            return reply

        return call


def _parent(call_context: grpc.aio.ServicerContext[Any, Any]) -> SpanContext:
    metadata = call_context.invocation_metadata() or ()
    headers = {key: str(value) for key, value in metadata if key in tracing.HEADERS}
    return tracing.extract(headers) if headers else trace.INVALID_SPAN_CONTEXT


def _status(error: BaseException | None, call_context: grpc.aio.ServicerContext[Any, Any]) -> StatusCode:
    if isinstance(error, asyncio.CancelledError):
        left = call_context.time_remaining()
        return (
            StatusCode.CANCELLED if left is None or left > _DEADLINE_TOLERANCE_SECONDS else StatusCode.DEADLINE_EXCEEDED
        )
    return call_context.code() or (StatusCode.UNKNOWN if error else StatusCode.OK)
