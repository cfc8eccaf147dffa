"""What is observed of calls between real servers and clients, and that observing them changes nothing."""

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
from services.common.interceptors import Boundary, server_interceptors
from services.common.server import serving
from tests.conftest import Serve
from tests.fakes.tracing import Kept

EXPERT = pb.DESCRIPTOR.services_by_name["ExpertService"]
INFER, PROGRESS = "hugginggpt.v1.ExpertService/Infer", "hugginggpt.v1.ExpertService/Progress"
STARTED = pb.ProgressEvent(call_id="started")
HANG_SECONDS = 15
"""Less than the deadline of any call here, so that it is not the deadline that ends a call."""


class Waiting(rpc.ExpertServiceServicer):
    """Answers when told to, and tells when its caller has gone."""

    def __init__(self) -> None:
        self.begun, self.answer, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.error: errors.ServiceError | None = None
        self.within = trace.INVALID_SPAN_CONTEXT

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        self.within = trace.get_current_span().get_span_context()
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
        self.begun.set()
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise


@pytest.fixture
async def expert() -> Waiting:
    return Waiting()


@pytest.fixture
async def stub(traces: Kept, expert: Waiting, serve: Serve) -> AsyncIterator[Any]:
    async with asyncio.timeout(20):
        yield rpc.ExpertServiceStub(await serve(partial(rpc.add_ExpertServiceServicer_to_server, expert), EXPERT))


def told(span: ReadableSpan) -> tuple[trace.SpanKind, object, object]:
    attributes = span.attributes or {}
    return span.kind, attributes["rpc.response.status_code"], attributes.get("error.type")


async def ends(traces: Kept, name: str) -> dict[trace.SpanKind, ReadableSpan]:
    """The spans of one call at both ends, once both have ended."""
    return {span.kind: span for span in await traces.ended(name, 2)}


async def test_client_and_server_spans_of_a_call_are_in_one_trace(stub: Any, expert: Waiting, traces: Kept) -> None:
    expert.answer.set()
    with trace.get_tracer("test").start_as_current_span("above") as above:
        await stub.Infer(pb.InferRequest(), timeout=5)
    spans = await ends(traces, INFER)
    client, server = spans[trace.SpanKind.CLIENT], spans[trace.SpanKind.SERVER]
    assert server.parent
    assert client.context
    assert client.parent == above.get_span_context()
    assert server.parent.span_id == client.context.span_id
    assert server.context == expert.within
    assert {span.context.trace_id for span in spans.values() if span.context} == {above.get_span_context().trace_id}
    assert dict(server.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": INFER,
        "rpc.response.status_code": "OK",
    }
    assert (client.end_time or 0) >= (server.end_time or 0) > (server.start_time or 0) >= (client.start_time or 0)


async def test_traced_call_has_trailing_metadata(stub: Any, expert: Waiting) -> None:
    expert.answer.set()
    call = stub.Infer(pb.InferRequest(), timeout=5)
    await call
    assert ("queue", "3") in tuple(await call.trailing_metadata())
    assert await call.code() is StatusCode.OK
    assert call.done()


async def cancelled(call: Any, expert: Waiting) -> None:
    task = asyncio.ensure_future(call)
    await expert.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def called_off(call: Any, expert: Waiting) -> None:
    task = asyncio.ensure_future(call)
    await expert.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def timed_out(call: Any, expert: Waiting) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            task = asyncio.create_task(_when(expert.begun, lambda: limit.reschedule(0)))
            await call
    await task


async def beside_a_failure(call: Any, expert: Waiting) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def await_call() -> None:
        await call

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(await_call())
            group.create_task(_when(expert.begun, fail))


async def _when(event: asyncio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


@pytest.mark.parametrize("leave", [cancelled, called_off, timed_out, beside_a_failure])
async def test_abandoned_call_is_cancelled_at_the_server(
    leave: Callable[[Any, Waiting], Awaitable[None]], stub: Any, expert: Waiting, traces: Kept
) -> None:
    await leave(stub.Infer(pb.InferRequest(), timeout=3600), expert)
    async with asyncio.timeout(HANG_SECONDS):
        await expert.left.wait()
    for span in (await ends(traces, INFER)).values():
        assert told(span)[1] == "CANCELLED"


async def broken_off(stub: Any) -> None:
    async for event in stub.Progress(pb.ProgressRequest(), timeout=3600):
        assert event == STARTED
        break


async def closed(stub: Any) -> None:
    events = aiter(stub.Progress(pb.ProgressRequest(), timeout=3600))
    assert await anext(events) == STARTED
    await events.aclose()


async def read_and_cancelled(stub: Any) -> None:
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    assert await call.read() == STARTED
    task = asyncio.ensure_future(call.read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def read_and_called_off(stub: Any) -> None:
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    assert await call.read() == STARTED
    call.cancel()


async def forgotten(stub: Any) -> None:
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    assert await call.read() == STARTED


@pytest.mark.parametrize("leave", [broken_off, closed, read_and_cancelled, read_and_called_off, forgotten])
async def test_abandoned_stream_is_cancelled_at_the_server(
    leave: Callable[[Any], Awaitable[None]], stub: Any, expert: Waiting, traces: Kept
) -> None:
    gc.disable()  # the collector is not what ends it
    try:
        await leave(stub)
        async with asyncio.timeout(HANG_SECONDS):
            await expert.left.wait()
    finally:
        gc.enable()
    for span in (await ends(traces, PROGRESS)).values():
        assert told(span)[1] == "CANCELLED"


@pytest.mark.parametrize("read", ["iterated", "read"])
async def test_traced_stream_can_be_iterated_and_read(stub: Any, expert: Waiting, traces: Kept, read: str) -> None:
    expert.answer.set()
    call = stub.Progress(pb.ProgressRequest(), timeout=3600)
    if read == "iterated":
        assert await anext(aiter(call)) == STARTED
        assert [event async for event in call] == []  # goes on where it was left
    else:
        assert [await call.read(), await call.read()] == [STARTED, grpc.aio.EOF]
    assert {told(span)[1] for span in (await ends(traces, PROGRESS)).values()} == {"OK"}


async def test_deadline_ends_both_spans(stub: Any, expert: Waiting, traces: Kept) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Infer(pb.InferRequest(), timeout=0.1)
    await expert.left.wait()
    for span in (await ends(traces, INFER)).values():
        assert told(span)[1:] == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
        assert span.status.status_code is trace.StatusCode.ERROR


@pytest.mark.parametrize(
    ("error", "servers_fault"), [(errors.NotFound("no such model"), None), (errors.ModelFailed("nan"), "INTERNAL")]
)
async def test_spans_have_the_status_but_not_the_message_of_an_error(
    error: errors.ServiceError, servers_fault: str | None, stub: Any, expert: Waiting, traces: Kept
) -> None:
    expert.error = error
    expert.answer.set()
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Infer(pb.InferRequest(), timeout=5)
    spans = await ends(traces, INFER)
    code = error.code.name
    assert told(spans[trace.SpanKind.CLIENT]) == (trace.SpanKind.CLIENT, code, code)
    assert told(spans[trace.SpanKind.SERVER]) == (trace.SpanKind.SERVER, code, servers_fault)
    assert not any(error.message in span.to_json() for span in spans.values())


async def test_remote_trace_is_continued_and_sampled_like_its_parent(stub: Any, expert: Waiting, traces: Kept) -> None:
    expert.answer.set()
    for number, flags in ((7, 0), (9, 1)):
        above = trace.SpanContext(number, 8, is_remote=True, trace_flags=trace.TraceFlags(flags))
        with trace.use_span(trace.NonRecordingSpan(above)):
            await stub.Infer(pb.InferRequest(), timeout=5)
        assert expert.within.trace_id == number
    spans = await ends(traces, INFER)
    assert [span.context.trace_id for span in spans.values() if span.context] == [9, 9]  # 7 was not sampled


async def test_health_checks_are_not_traced(stub: Any, expert: Waiting, traces: Kept, serve: Serve) -> None:
    channel = await serve(partial(rpc.add_ExpertServiceServicer_to_server, expert), EXPERT)
    health: Any = health_pb2_grpc.HealthStub(channel)
    await health.Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert traces.get_finished_spans() == ()


async def test_channel_and_server_are_plain_without_tracing(expert: Waiting) -> None:
    assert [type(interceptor) for interceptor in server_interceptors()] == [Boundary]
    async with (
        serving(partial(rpc.add_ExpertServiceServicer_to_server, expert), EXPERT) as running,
        dial(f"127.0.0.1:{running.port}") as channel,
    ):
        expert.answer.set()
        call = rpc.ExpertServiceStub(channel).Infer(pb.InferRequest(), timeout=5, wait_for_ready=True)
        assert isinstance(call, grpc.aio.UnaryUnaryCall)
        await call
