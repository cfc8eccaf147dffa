"""Traces and metrics of services as processes of their own."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from structlog.testing import capture_logs

from protos.hugginggpt.v1 import responder_pb2 as pb
from protos.hugginggpt.v1 import responder_pb2_grpc as rpc
from protos.hugginggpt.v1.types_pb2 import Turn
from services.runtime import tracing
from services.runtime.channel import dial
from tests.logs import logged

Start = Callable[..., Awaitable[Process]]

COUNTING = """
import asyncio
from services.orchestrator import metrics as own
from services.runtime import metrics, telemetry
telemetry.setup("orchestrator")
async def main():
    async with metrics.exposed("orchestrator", "127.0.0.1:0"):
        own.expert_queue_depth.add(3, {"expert": "vision"})
        own.expert_queue_depth.add(-1, {"expert": "vision"})
        own.runs_ended.add(1, {"state": "completed", "reason": ""})
        own.journal_seconds.record(0.004)
        await asyncio.sleep(60)
asyncio.run(main())
"""
"""A process whose instruments were made before anyone asked for them."""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts programs; kills those that a test leaves behind."""
    started: list[Process] = []

    async def start(*arguments: str, **environment: str) -> Process:
        own = {**os.environ, "RESPONDER_LISTEN": "127.0.0.1:0", "DRAIN_SECONDS": "1", **environment}
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=PIPE, env=own)
        started.append(process)
        return process

    async with asyncio.timeout(60):
        yield start
    for process in started:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def fetched(port: int, path: str = "/metrics") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://127.0.0.1:{port}{path}")


async def respond(port: int) -> None:
    async with dial(f"127.0.0.1:{port}") as channel:
        request = pb.RespondRequest(conversation=[Turn(text="hello")])
        async for _ in rpc.ResponderServiceStub(channel).Respond(request, timeout=10, wait_for_ready=True):
            pass


@asynccontextmanager
async def collector(arrived: asyncio.Queue[tuple[str, str]]) -> AsyncIterator[str]:
    """Takes spans by OTLP, and tells service and name of each."""

    class Collector(TraceServiceServicer):
        async def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
            for of in request.resource_spans:
                (service,) = [each.value.string_value for each in of.resource.attributes if each.key == "service.name"]
                for span in (span for scope in of.scope_spans for span in scope.spans):
                    arrived.put_nowait((service, span.name))
            return ExportTraceServiceResponse()

    server = grpc.aio.server()
    add_TraceServiceServicer_to_server(Collector(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"http://127.0.0.1:{port}"
    await server.stop(0)


async def test_instruments_are_read_by_the_names_they_have(start: Start) -> None:
    port = (await logged(await start("-c", COUNTING), "metrics"))["port"]
    lines = (await fetched(port)).text.splitlines()
    assert 'expert_queue_depth{expert="vision"} 2.0' in lines
    assert 'runs_ended_total{reason="",state="completed"} 1.0' in lines
    assert 'journal_write_duration_seconds_bucket{le="0.0025"} 0.0' in lines
    assert 'journal_write_duration_seconds_bucket{le="0.005"} 1.0' in lines
    assert [line for line in lines if line.startswith("process_resident_memory_bytes ")]
    assert "otel_scope" not in "".join(lines)
    assert (await fetched(port, "/other")).status_code == httpx.codes.NOT_FOUND


async def test_a_service_counts_its_calls(start: Start) -> None:
    process = await start("-m", "services.responder", METRICS_LISTEN="127.0.0.1:0")
    port = (await logged(process, "metrics"))["port"]
    await respond((await logged(process, "serving"))["port"])
    (line,) = [
        line
        for line in (await fetched(port)).text.splitlines()
        if line.startswith("rpc_server_call_duration_seconds_count")
    ]
    assert 'rpc_method="hugginggpt.v1.ResponderService/Respond"' in line
    assert 'rpc_response_status_code="OK"' in line
    assert line.endswith(" 1.0")


async def test_a_fetch_that_breaks_off_costs_the_next_nothing(start: Start) -> None:
    port = (await logged(await start("-c", COUNTING), "metrics"))["port"]
    for said in (b"", b"GET /metr", b"\r\n\r\n", b"\xff" * 100_000):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        writer.close()
    assert (await fetched(port)).status_code == httpx.codes.OK


@pytest.mark.parametrize("listen", ["taken", "nowhere", "127.0.0.1:port", "127.0.0.1:99999"])
async def test_an_address_that_cannot_be_had_is_a_clear_error(listen: str, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}" if listen == "taken" else listen
        process = await start("-m", "services.responder", METRICS_LISTEN=listen)
        told = await logged(process, "cannot run")
        assert await process.wait() == 1
    assert listen in told["error"]
    assert "METRICS_LISTEN" in told["remedy"]


async def test_an_endpoint_that_is_away_slows_and_fails_nothing(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = await start("-m", "services.responder", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
        port = (await logged(process, "serving"))["port"]
        async with asyncio.timeout(10):
            await asyncio.gather(*(respond(port) for _ in range(20)))
        process.terminate()
        async with asyncio.timeout(5):
            assert await process.wait() == 0


async def test_spans_arrive_where_they_are_sent(start: Start) -> None:
    arrived: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    async with collector(arrived) as endpoint:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "10"}
        process = await start("-m", "services.responder", **environment)
        await respond((await logged(process, "serving"))["port"])
        assert await arrived.get() == ("responder", "hugginggpt.v1.ResponderService/Respond")


def test_an_exporter_that_is_not_installed_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with capture_logs() as logs:
        tracing.begin("responder", "http://127.0.0.1:1")
    (entry,) = logs
    assert entry["log_level"] == "error"
    assert "hugginggpt[telemetry]" in entry["remedy"]
    assert tracing.current() is None
