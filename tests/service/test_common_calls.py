"""Traces of calls between real servers and clients, and that tracing does not change the calls."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from services.common import errors
from services.common.channel import dial
from services.common.interceptors import StatusInterceptor, server_interceptors
from services.common.server import serving
from tests.conftest import Serve
from tests.fakes.infer_only import InferOnlyExpert
from tests.fakes.tracing import RecordedTraces

EXPERT = pb.DESCRIPTOR.services_by_name["ExpertService"]
INFER, PROGRESS = "hugginggpt.v1.ExpertService/Infer", "hugginggpt.v1.ExpertService/Progress"
STARTED = pb.ProgressEvent(call_id="started")
HANG_SECONDS = 15
"""Less than the deadline of the calls, so that a passing test proves their cancellation."""


class BlockingExpert(InferOnlyExpert):
    """Answers when `answer` is set; sets `cancelled_event` when its call is cancelled."""

    def __init__(self) -> None:
        self.started, self.answer, self.cancelled_event = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.error: errors.ServiceError | None = None
        self.span_context = trace.INVALID_SPAN_CONTEXT

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        self.span_context = trace.get_current_span().get_span_context()
        await self._wait()
        if self.error:
            raise self.error
        context.set_trailing_metadata((("queue", "3"),))
        return pb.InferResponse()

    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await context.write(STARTED)
        await self._wait()

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeResponse:
        return pb.DescribeResponse()

    async def _wait(self) -> None:
        self.started.set()
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.cancelled_event.set()
            raise


@pytest.fixture
async def waiting_expert() -> BlockingExpert:
    return BlockingExpert()


@pytest.fixture
async def stub(traces: RecordedTraces, waiting_expert: BlockingExpert, serve: Serve) -> AsyncIterator[Any]:
    async with asyncio.timeout(20):
        yield rpc.ExpertServiceStub(
            await serve(partial(rpc.add_ExpertServiceServicer_to_server, waiting_expert), EXPERT)
        )


def facts(span: ReadableSpan) -> tuple[trace.SpanKind, object, object]:
    attributes = span.attributes or {}
    return span.kind, attributes["rpc.response.status_code"], attributes.get("error.type")


async def spans_by_kind(traces: RecordedTraces, name: str) -> dict[trace.SpanKind, ReadableSpan]:
    """The client's and the server's span of one call, once both have ended."""
    return {span.kind: span for span in await traces.ended(name, 2)}


async def test_client_and_server_spans_of_a_call_are_in_one_trace(
    stub: Any, waiting_expert: BlockingExpert, traces: RecordedTraces
) -> None:
    waiting_expert.answer.set()
    with trace.get_tracer("test").start_as_current_span("above") as parent:
        await stub.Infer(pb.InferRequest(), timeout=5)
    spans = await spans_by_kind(traces, INFER)
    client, server = spans[trace.SpanKind.CLIENT], spans[trace.SpanKind.SERVER]
    assert server.parent
    assert client.context
    assert client.parent == parent.get_span_context()
    assert server.parent.span_id == client.context.span_id
    assert server.context == waiting_expert.span_context
    assert {span.context.trace_id for span in spans.values() if span.context} == {parent.get_span_context().trace_id}
    assert dict(server.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": INFER,
        "rpc.response.status_code": "OK",
    }
    assert (client.end_time or 0) >= (server.end_time or 0) > (server.start_time or 0) >= (client.start_time or 0)


async def test_traced_call_has_trailing_metadata(stub: Any, waiting_expert: BlockingExpert) -> None:
    waiting_expert.answer.set()
    call = stub.Infer(pb.InferRequest(), timeout=5)
    await call
    assert ("queue", "3") in tuple(await call.trailing_metadata())
    assert await call.code() is StatusCode.OK
    assert call.done()


async def awaiting_task_cancelled(call: Any, waiting_expert: BlockingExpert) -> None:
    task = asyncio.ensure_future(call)
    await waiting_expert.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def call_cancelled(call: Any, waiting_expert: BlockingExpert) -> None:
    task = asyncio.ensure_future(call)
    await waiting_expert.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def timeout_expired(call: Any, waiting_expert: BlockingExpert) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            task = asyncio.create_task(_after(waiting_expert.started, lambda: limit.reschedule(0)))
            await call
    await task


async def sibling_task_failed(call: Any, waiting_expert: BlockingExpert) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def await_call() -> None:
        await call

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(await_call())
            group.create_task(_after(waiting_expert.started, fail))


async def _after(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


@pytest.mark.parametrize("leave", [awaiting_task_cancelled, call_cancelled, timeout_expired, sibling_task_failed])
async def test_abandoned_call_is_cancelled_at_the_server(
    leave: Callable[[Any, BlockingExpert], Awaitable[None]],
    stub: Any,
    waiting_expert: BlockingExpert,
    traces: RecordedTraces,
) -> None:
    await leave(stub.Infer(pb.InferRequest(), timeout=3600), waiting_expert)
    async with asyncio.timeout(HANG_SECONDS):
        await waiting_expert.cancelled_event.wait()
    for span in (await spans_by_kind(traces, INFER)).values():
        assert facts(span)[1] == "CANCELLED"


async def loop_left(stub: Any) -> None:
    async for event in stub.Progress(pb.ProgressRequest(), timeout=3600):
        assert event == STARTED
        break


async def iterator_closed(stub: Any) -> None:
    events = aiter(stub.Progress(pb.ProgressRequest(), timeout=3600))
    assert await anext(events) == STARTED
    await events.aclose()


async def reading_task_cancelled(stub: Any) -> None:
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    assert await call.read() == STARTED
    task = asyncio.ensure_future(call.read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def read_call_cancelled(stub: Any) -> None:
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    assert await call.read() == STARTED
    call.cancel()


async def call_dropped(stub: Any) -> None:
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    assert await call.read() == STARTED


@pytest.mark.parametrize(
    "leave", [loop_left, iterator_closed, reading_task_cancelled, read_call_cancelled, call_dropped]
)
async def test_abandoned_stream_is_cancelled_at_the_server(
    leave: Callable[[Any], Awaitable[None]], stub: Any, waiting_expert: BlockingExpert, traces: RecordedTraces
) -> None:
    gc.disable()  # garbage collection must not be what ends the stream
    try:
        await leave(stub)
        async with asyncio.timeout(HANG_SECONDS):
            await waiting_expert.cancelled_event.wait()
    finally:
        gc.enable()
    for span in (await spans_by_kind(traces, PROGRESS)).values():
        assert facts(span)[1] == "CANCELLED"


@pytest.mark.parametrize("read", ["iterated", "read"])
async def test_traced_stream_can_be_iterated_and_read(
    stub: Any, waiting_expert: BlockingExpert, traces: RecordedTraces, read: str
) -> None:
    waiting_expert.answer.set()
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    if read == "iterated":
        assert await anext(aiter(call)) == STARTED
        assert [event async for event in call] == []  # continues the iteration
    else:
        assert [await call.read(), await call.read()] == [STARTED, grpc.aio.EOF]
    assert {facts(span)[1] for span in (await spans_by_kind(traces, PROGRESS)).values()} == {"OK"}


async def test_deadline_ends_both_spans(stub: Any, waiting_expert: BlockingExpert, traces: RecordedTraces) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Infer(pb.InferRequest(), timeout=0.1)
    await waiting_expert.cancelled_event.wait()
    for span in (await spans_by_kind(traces, INFER)).values():
        assert facts(span)[1:] == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
        assert span.status.status_code is trace.StatusCode.ERROR


@pytest.mark.parametrize(
    ("error", "server_error_type"), [(errors.NotFound("no such model"), None), (errors.ModelFailed("nan"), "INTERNAL")]
)
async def test_spans_have_the_status_but_not_the_message_of_an_error(
    error: errors.ServiceError,
    server_error_type: str | None,
    stub: Any,
    waiting_expert: BlockingExpert,
    traces: RecordedTraces,
) -> None:
    waiting_expert.error = error
    waiting_expert.answer.set()
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Infer(pb.InferRequest(), timeout=5)
    spans = await spans_by_kind(traces, INFER)
    code = error.code.name
    assert facts(spans[trace.SpanKind.CLIENT]) == (trace.SpanKind.CLIENT, code, code)
    assert facts(spans[trace.SpanKind.SERVER]) == (trace.SpanKind.SERVER, code, server_error_type)
    assert not any(error.message in span.to_json() for span in spans.values())


async def test_remote_trace_is_continued_and_sampled_like_its_parent(
    stub: Any, waiting_expert: BlockingExpert, traces: RecordedTraces
) -> None:
    waiting_expert.answer.set()
    for number, flags in ((7, 0), (9, 1)):
        parent = trace.SpanContext(number, 8, is_remote=True, trace_flags=trace.TraceFlags(flags))
        with trace.use_span(trace.NonRecordingSpan(parent)):
            await stub.Infer(pb.InferRequest(), timeout=5)
        assert waiting_expert.span_context.trace_id == number
    spans = await spans_by_kind(traces, INFER)
    assert [span.context.trace_id for span in spans.values() if span.context] == [9, 9]  # 7 was not sampled


async def test_health_checks_are_not_traced(
    stub: Any, waiting_expert: BlockingExpert, traces: RecordedTraces, serve: Serve
) -> None:
    channel = await serve(partial(rpc.add_ExpertServiceServicer_to_server, waiting_expert), EXPERT)
    health: Any = health_pb2_grpc.HealthStub(channel)
    await health.Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert traces.get_finished_spans() == ()


async def test_channel_and_server_are_plain_without_tracing(waiting_expert: BlockingExpert) -> None:
    assert [type(interceptor) for interceptor in server_interceptors()] == [StatusInterceptor]
    async with (
        serving(partial(rpc.add_ExpertServiceServicer_to_server, waiting_expert), EXPERT) as running,
        dial(f"127.0.0.1:{running.port}") as channel,
    ):
        waiting_expert.answer.set()
        call = rpc.ExpertServiceStub(channel).Infer(pb.InferRequest(), timeout=5, wait_for_ready=True)
        assert isinstance(call, grpc.aio.UnaryUnaryCall)
        await call
