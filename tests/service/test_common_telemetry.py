"""Export of traces and metrics by service processes."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from protos.hugginggpt.internal.v1 import responder_pb2_grpc as rpc
from protos.hugginggpt.v1.run_pb2 import Turn
from services.common import tracing
from services.common.channel import dial
from tests.fakes.collector import collecting
from tests.support.logs import logged
from tests.support.processes import Start, processes

ROOT = Path(__file__).parents[2]
ANY = "127.0.0.1:0"
RESPOND_DURATION = ("responder", "rpc.server.call.duration")

METRICS_PROGRAM = """
import asyncio
from services.orchestrator import metrics as own
from services.common import logging, metrics
logging.setup("orchestrator")
async def main():
    async with metrics.exporting("orchestrator", "127.0.0.1:0"):
        own.expert_queue_depth.add(3, {"expert": "vision"})
        own.expert_queue_depth.add(-1, {"expert": "vision"})
        own.runs_ended.add(1, {"state": "completed", "reason": ""})
        own.journal_seconds.record(0.004)
        await asyncio.sleep(60)
asyncio.run(main())
"""
"""A process that creates its instruments before metrics are set up."""


@pytest.fixture
async def start_process() -> AsyncIterator[Start]:
    async with processes(60) as start_process:
        yield start_process


async def fetch(port: int, path: str = "/metrics") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://127.0.0.1:{port}{path}")


async def respond(port: int) -> None:
    async with dial(f"127.0.0.1:{port}") as channel:
        request = pb.RespondRequest(conversation=[Turn(text="hello")])
        async for _ in rpc.ResponderServiceStub(channel).Respond(request, timeout=10, wait_for_ready=True):
            pass


async def test_instruments_are_served_under_their_prometheus_names(start_process: Start) -> None:
    port = (await logged(await start_process("-c", METRICS_PROGRAM), "metrics"))["port"]
    lines = (await fetch(port)).text.splitlines()
    assert 'expert_queue_depth{expert="vision"} 2.0' in lines
    assert 'runs_ended_total{reason="",state="completed"} 1.0' in lines
    assert 'journal_write_duration_seconds_bucket{le="0.0025"} 0.0' in lines
    assert 'journal_write_duration_seconds_bucket{le="0.005"} 1.0' in lines
    assert [line for line in lines if line.startswith("process_resident_memory_bytes ")]
    assert "otel_scope" not in "".join(lines)
    assert (await fetch(port, "/other")).status_code == httpx.codes.NOT_FOUND


async def test_server_records_the_duration_of_calls(start_process: Start) -> None:
    process = await start_process("-m", "services.responder", RESPONDER_LISTEN=ANY, METRICS_LISTEN="127.0.0.1:0")
    port = (await logged(process, "metrics"))["port"]
    await respond((await logged(process, "serving"))["port"])
    (line,) = [
        line
        for line in (await fetch(port)).text.splitlines()
        if line.startswith("rpc_server_call_duration_seconds_count")
    ]
    assert 'rpc_method="hugginggpt.internal.v1.ResponderService/Respond"' in line
    assert 'rpc_response_status_code="OK"' in line
    assert line.endswith(" 1.0")


async def test_aborted_request_does_not_affect_the_next(start_process: Start) -> None:
    port = (await logged(await start_process("-c", METRICS_PROGRAM), "metrics"))["port"]
    for data in (b"", b"GET /metr", b"\r\n\r\n", b"\xff" * 100_000):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.close()
    assert (await fetch(port)).status_code == httpx.codes.OK


@pytest.mark.parametrize("listen", ["taken", "nowhere", "127.0.0.1:port", "127.0.0.1:99999"])
async def test_unusable_metrics_address_is_reported(listen: str, start_process: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}" if listen == "taken" else listen
        process = await start_process("-m", "services.responder", RESPONDER_LISTEN=ANY, METRICS_LISTEN=listen)
        event = await logged(process, "cannot run")
        assert await process.wait() == 1
    assert listen in event["error"]
    assert "METRICS_LISTEN" in event["remedy"]


async def test_spans_are_exported(start_process: Start) -> None:
    async with collecting() as collected:
        process = await start_process("-m", "services.responder", RESPONDER_LISTEN=ANY, **collected.settings)
        await respond((await logged(process, "serving"))["port"])
        assert await collected.spans.get() == ("responder", "hugginggpt.internal.v1.ResponderService/Respond")


async def test_metrics_are_exported_and_served(start_process: Start) -> None:
    async with collecting() as collected:
        settings = {"RESPONDER_LISTEN": ANY, "METRICS_LISTEN": ANY, **collected.settings}
        process = await start_process("-m", "services.responder", **settings)
        metrics_port, serving_port = [(await logged(process, event))["port"] for event in ("metrics", "serving")]
        await respond(serving_port)
        while await collected.metrics.get() != RESPOND_DURATION:
            pass
        assert "rpc_server_call_duration_seconds_count" in (await fetch(metrics_port)).text


async def test_last_measurements_are_exported_at_shutdown(start_process: Start) -> None:
    async with collecting() as collected:
        settings = {"RESPONDER_LISTEN": ANY, **collected.settings, "OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
        process = await start_process("-m", "services.responder", **settings)
        await respond((await logged(process, "serving"))["port"])
        process.terminate()
        assert await collected.metrics.get() == RESPOND_DURATION
        assert await process.wait() == 0


async def test_otel_metrics_exporter_none_exports_no_metrics(start_process: Start) -> None:
    async with collecting() as collected:
        settings = {"RESPONDER_LISTEN": ANY, **collected.settings, "OTEL_METRICS_EXPORTER": "none"}
        process = await start_process("-m", "services.responder", **settings)
        await respond((await logged(process, "serving"))["port"])
        await collected.spans.get()
        process.terminate()
        await process.wait()
        assert collected.metrics.empty()


def test_missing_exporter_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with capture_logs() as logs:
        tracing.setup("responder", "http://127.0.0.1:1")
    (entry,) = logs
    assert entry["log_level"] == "error"
    assert "hugginggpt[telemetry]" in entry["remedy"]
    assert tracing.provider() is None


CLOSING_PROGRAM = """
import asyncio, socket
from services.common import metrics
async def main():
    async with metrics.exporting("test", "127.0.0.1:0") as port:
        socket.create_connection(("127.0.0.1", port)).close()
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        print("closed")
asyncio.run(main())
"""


async def test_metrics_server_closes_at_shutdown() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLOSING_PROGRAM), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert output.endswith(b"closed\n")
