"""RPCs as traces and metrics see them, at both ends, in OpenTelemetry's names; loaded only where one of them is on.

Two things are not done the usual way. gRPC's client interceptors are left alone: they add a task per call, and know
nothing of a reader who leaves; here the call is made at once, what the caller holds passes everything on to it, and a
stream that is broken off ends at once, which gRPC leaves to the garbage collector. And a span is not kept open: what
goes over the wire is its name alone, and it is written down once, when the call has ended, at a third of the time that
opening and closing one takes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from functools import cache, partial
from typing import Any

import grpc
from grpc import StatusCode
from opentelemetry import context, metrics, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, TraceFlags

from services.common import semantic_conventions as names
from services.common import spans

_IDS = RandomIdGenerator()
_SECONDS = metrics.get_meter("hugginggpt.rpc").create_histogram(
    names.RPC_SECONDS, unit="s", description="Calls answered, by method and status."
)
_SCOPE = InstrumentationScope("hugginggpt.rpc")
_UNSET, _ERROR = Status(), Status(trace.StatusCode.ERROR)
_LAST_SECONDS = 0.01
"""A call cancelled so close to its deadline was ended by it: the caller's clock may be the first."""

_SERVERS_FAULTS = frozenset(
    {
        StatusCode.UNKNOWN,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.UNIMPLEMENTED,
        StatusCode.INTERNAL,
        StatusCode.UNAVAILABLE,
        StatusCode.DATA_LOSS,
    }
)
_FAULTS = {SpanKind.CLIENT: frozenset(StatusCode) - {StatusCode.OK}, SpanKind.SERVER: _SERVERS_FAULTS}
"""The codes that mean an error, for who asked and for who answered."""


class Traces(TracerProvider):
    """The tracers of a process, which take spans that have ended, too."""

    def write(self, span: ReadableSpan) -> None:
        """Hands on a span that was made elsewhere."""
        self._active_span_processor.on_end(span)


class _Observation:
    """One call, until the first end that is told of it; one that is forgotten was cancelled."""

    __slots__ = ("_began", "_clock", "_ended", "_kind", "_method", "_parent", "_traces", "context")

    def __init__(self, traces: Traces | None, kind: SpanKind, method: str, parent: SpanContext) -> None:
        self._traces, self._kind, self._method, self._parent, self._ended = traces, kind, method, parent, False
        self.context = trace.INVALID_SPAN_CONTEXT if traces is None else begun(traces, kind, method, parent)
        self._began, self._clock = time.time_ns(), time.monotonic_ns()

    def end(self, code: StatusCode) -> None:
        """Notes how it ended; the words of an error may be a user's, and are left out."""
        if self._ended:
            return
        self._ended, elapsed = True, time.monotonic_ns() - self._clock
        if self._kind is SpanKind.SERVER:
            _SECONDS.record(elapsed / 1e9, _told(self._method, code))
        if self._traces and self.context.trace_flags & TraceFlags.SAMPLED:
            fault = code in _FAULTS[self._kind]
            self._traces.write(
                ReadableSpan(
                    self._method,
                    self.context,
                    self._parent if self._parent.is_valid else None,
                    self._traces.resource,
                    _told(self._method, code, fault=fault),
                    kind=self._kind,
                    status=_ERROR if fault else _UNSET,
                    start_time=self._began,
                    end_time=self._began + elapsed,
                    instrumentation_scope=_SCOPE,
                )
            )

    def __del__(self) -> None:
        self.end(StatusCode.CANCELLED)


def begun(traces: Traces, kind: SpanKind, method: str, parent: SpanContext) -> SpanContext:
    """The name of a new span: of its parent's trace and as its parent sampled, else of a trace of its own."""
    if parent.is_valid:
        return SpanContext(parent.trace_id, _IDS.generate_span_id(), False, parent.trace_flags, parent.trace_state)
    trace_id = _IDS.generate_trace_id()
    sampled = traces.sampler.should_sample(None, trace_id, method, kind).decision is Decision.RECORD_AND_SAMPLE
    flags = TraceFlags(sampled)
    return SpanContext(trace_id, _IDS.generate_span_id(), is_remote=False, trace_flags=flags)


@cache
def _told(method: str, code: StatusCode, *, fault: bool = False) -> Mapping[str, str]:
    told = {"rpc.system.name": "grpc", "rpc.method": method, "rpc.response.status_code": code.name}
    return told | {"error.type": code.name} if fault else told


# ---------------------------------------------------------------- the client's end


def observe(channel: grpc.aio.Channel, traces: Traces) -> grpc.aio.Channel:
    """The same channel, whose unary and server-streaming calls are observed and carry the trace on."""
    for kind, made in (("unary_unary", _Unary), ("unary_stream", _Stream)):
        setattr(channel, kind, partial(_method, getattr(channel, kind), traces, made))
    return channel


def _method(
    original: Callable[..., Any], traces: Traces, made: "type[_Call]", method: str, *args: Any, **kwargs: Any
) -> Callable[..., Any]:
    callable_: Callable[..., Any] = original(method, *args, **kwargs)
    if method.startswith("/grpc."):
        return callable_

    def call(request: Any, *, metadata: Any = None, **options: Any) -> _Call:
        parent = trace.get_current_span().get_span_context()
        observation = _Observation(traces, SpanKind.CLIENT, method[1:], parent)
        return made(
            callable_(request, metadata=(*(metadata or ()), *_carried(observation.context)), **options), observation
        )

    return call


def _carried(span: SpanContext) -> Iterator[tuple[str, str]]:
    """A span's name as W3C has it in headers."""
    yield "traceparent", spans.written(span)
    if span.trace_state:
        yield "tracestate", span.trace_state.to_header()


class _Call:
    """What gRPC's call is, besides noting how it ends."""

    __slots__ = ("_call", "_observation")

    def __init__(self, call: Any, observation: _Observation) -> None:
        self._call, self._observation = call, observation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def cancel(self) -> bool:
        """As gRPC's."""
        self._observation.end(StatusCode.CANCELLED)
        return bool(self._call.cancel())


class _Unary(_Call):
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            reply = yield from self._call.__await__()
        except BaseException as error:
            _broken(self._observation, error)
            raise
        self._observation.end(StatusCode.OK)
        return reply


class _Stream(_Call):
    __slots__ = ("_messages",)

    def __init__(self, call: Any, observation: _Observation) -> None:
        super().__init__(call, observation)
        self._messages: AsyncIterator[Any] | None = None

    def __del__(self) -> None:
        if self._messages is None:
            self._call.cancel()  # nobody can read it any more

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._messages is None:
            self._messages = _messages(self._call, self._observation)
        return self._messages

    async def read(self) -> Any:
        """As gRPC's."""
        try:
            message = await self._call.read()
        except BaseException as error:
            _broken(self._observation, error)
            raise
        if message is grpc.aio.EOF:
            self._observation.end(StatusCode.OK)
        return message


async def _messages(call: Any, observation: _Observation) -> AsyncIterator[Any]:
    """Knows nothing of the call around it: in a circle, only the garbage collector would end what nobody reads."""
    try:
        async for message in call:
            yield message
    except BaseException as error:
        call.cancel()  # nothing, unless the reader has left
        _broken(observation, error)
        raise
    observation.end(StatusCode.OK)


def _broken(observation: _Observation, error: BaseException) -> None:
    if isinstance(error, grpc.aio.AioRpcError):
        observation.end(error.code())
    elif isinstance(error, asyncio.CancelledError | GeneratorExit):
        observation.end(StatusCode.CANCELLED)
    else:
        observation.end(StatusCode.UNKNOWN)


# ---------------------------------------------------------------- the server's end


class Observing(grpc.aio.ServerInterceptor):
    """Observes the calls that arrive; while one is answered, its span is the current one. To be the outermost."""

    def __init__(self, traces: Traces | None) -> None:
        self._traces = traces

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        for kind in ("unary_unary", "unary_stream", "stream_unary"):
            if answer := getattr(handler, kind):
                return handler._replace(**{kind: self._observed(method[1:], answer)})
        return handler

    def _observed(self, method: str, answer: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, arrived: grpc.aio.ServicerContext[Any, Any]) -> Any:
            observation = _Observation(self._traces, SpanKind.SERVER, method, _parent(arrived))
            token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(observation.context)))
            try:
                reply = await answer(request, arrived)
            except BaseException as error:
                observation.end(_status(error, arrived))
                raise
            finally:
                context.detach(token)
            observation.end(_status(None, arrived))
            return reply

        return call


def _parent(arrived: grpc.aio.ServicerContext[Any, Any]) -> SpanContext:
    headers = {key: str(value) for key, value in arrived.invocation_metadata() or () if key in spans.HEADERS}
    return spans.read(headers) if headers else trace.INVALID_SPAN_CONTEXT


def _status(error: BaseException | None, arrived: grpc.aio.ServicerContext[Any, Any]) -> StatusCode:
    if isinstance(error, asyncio.CancelledError):
        left = arrived.time_remaining()
        return StatusCode.CANCELLED if left is None or left > _LAST_SECONDS else StatusCode.DEADLINE_EXCEEDED
    return arrived.code() or (StatusCode.UNKNOWN if error else StatusCode.OK)
