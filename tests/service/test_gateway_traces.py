"""Traces and access logs of requests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from structlog.testing import capture_logs

from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent
from protos.hugginggpt.v1.gateway_pb2 import GetRunRequest
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RunSpec
from services.common import tracing
from tests.fakes import ScriptedOrchestrator
from tests.fakes.tracing import RecordedTraces
from tests.support.gateway import GatewayUnderTest, start_gateway

CLIENT_TRACE = "00-0000000000000000000000000000abcd-00000000000000ef-01"
SECRET = "a secret in a path or a body"


@pytest.fixture
async def gateway(traces: RecordedTraces, tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    orchestrator = ScriptedOrchestrator()
    orchestrator.script = [RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED))]
    async with asyncio.timeout(20), start_gateway(tmp_path, orchestrator) as opened:
        traces.clear()
        yield opened


async def one(traces: RecordedTraces, name: str) -> ReadableSpan:
    (span,) = await traces.ended(name, 1)
    return span


async def test_request_span_joins_the_client_trace(gateway: GatewayUnderTest, traces: RecordedTraces) -> None:
    await gateway.ask(SECRET, headers={"traceparent": CLIENT_TRACE, "Prefer": "wait=5"})
    span = await one(traces, "POST /v1/runs")
    assert span.context
    assert span.parent
    assert span.context.trace_id == 0xABCD
    assert span.parent.span_id == 0xEF
    assert span.kind == trace.SpanKind.SERVER
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/runs",
        "http.response.status_code": 200,
    }
    calls = await traces.ended("hugginggpt.internal.v1.OrchestratorService/CreateRun", 2)
    client = next(call for call in calls if call.kind is trace.SpanKind.CLIENT)
    assert client.parent
    assert client.parent.span_id == span.context.span_id
    assert not any(SECRET in each.to_json() for each in traces.get_finished_spans())


async def test_response_names_its_trace_across_origins(traces: RecordedTraces, tmp_path: Path) -> None:
    page = {"origin": "https://app.example"}
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "traceparent, tracestate"}
    async with asyncio.timeout(20), start_gateway(tmp_path, settings={"cors_origins": page["origin"]}) as gateway:
        allowed = await gateway.http.options("/v1/runs", headers={**page, **preflight})
        answer = await gateway.http.get("/v1/tasks", headers={**page, "traceparent": CLIENT_TRACE})
    assert allowed.headers["access-control-allow-headers"] == preflight["access-control-request-headers"]
    assert answer.headers["x-trace-id"] == f"{0xABCD:032x}"
    assert "x-trace-id" in answer.headers["access-control-expose-headers"].split(", ")


async def test_untraced_response_has_no_trace_id(tmp_path: Path) -> None:
    async with asyncio.timeout(20), start_gateway(tmp_path) as gateway:
        assert "x-trace-id" not in (await gateway.http.get("/v1/tasks", headers={"traceparent": CLIENT_TRACE})).headers


async def test_grpc_call_joins_the_client_trace(gateway: GatewayUnderTest, traces: RecordedTraces) -> None:
    request = gateway_pb2.CreateRunRequest(spec=RunSpec(request="do it"))
    with trace.use_span(trace.NonRecordingSpan(tracing.extract({"traceparent": CLIENT_TRACE}))):
        async for _ in gateway.grpc.CreateRun(request, timeout=5):
            pass
    calls = await traces.ended("hugginggpt.internal.v1.OrchestratorService/CreateRun", 2)
    assert {call.context.trace_id for call in calls if call.context} == {0xABCD}


@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        ("/v1/runs/run_9", "GET /v1/runs/{run_id}", 404),
        ("/v1/runs/run_9?secret=1", "GET /v1/runs/{run_id}", 400),
        (f"/{SECRET}", "GET", 404),
        ("/v1/tasks", "GET /v1/tasks", 200),
    ],
)
async def test_span_names_are_routes(
    gateway: GatewayUnderTest, traces: RecordedTraces, path: str, name: str, status: int
) -> None:
    await gateway.http.get(path)
    span = await one(traces, name)
    assert (span.attributes or {})["http.response.status_code"] == status
    assert span.status.is_unset
    assert "secret" not in span.to_json()


async def test_probes_are_not_traced(gateway: GatewayUnderTest, traces: RecordedTraces) -> None:
    for path in ("/healthz", "/readyz"):
        await gateway.http.get(path)
    assert traces.get_finished_spans() == ()


async def test_invalid_traceparent_starts_a_new_trace(gateway: GatewayUnderTest, traces: RecordedTraces) -> None:
    await gateway.http.get("/v1/tasks", headers={"traceparent": "00-nonsense"})
    assert (await one(traces, "GET /v1/tasks")).parent is None


async def logged_requests(logs: Sequence[Any], count: int) -> list[Any]:
    """Waits for the access log's lines of so many requests: a request is logged after its response was sent."""
    async with asyncio.timeout(20):
        while len(lines := [line for line in logs if line["event"] == "request"]) < count:  # noqa: ASYNC110  # a log has no event to wait for
            await asyncio.sleep(0)
    return lines


async def test_grpc_access_log_has_code_and_run_id(gateway: GatewayUnderTest) -> None:
    with capture_logs() as logs:
        async for _ in gateway.grpc.CreateRun(gateway_pb2.CreateRunRequest(spec=RunSpec(request=SECRET)), timeout=5):
            pass
        for run_id in ("run_9", SECRET):
            with pytest.raises(grpc.aio.AioRpcError):
                await gateway.grpc.GetRun(GetRunRequest(run_id=run_id), timeout=5)
    logged_calls = [(line["method"], line["code"], line.get("run_id")) for line in logs if line["event"] == "call"]
    service = "hugginggpt.v1.GatewayService"
    assert logged_calls == [
        (f"{service}/CreateRun", "OK", "run_1"),
        (f"{service}/GetRun", "NOT_FOUND", "run_9"),
        (f"{service}/GetRun", "NOT_FOUND", None),
    ]


async def test_http_access_log_has_run_id(gateway: GatewayUnderTest) -> None:
    with capture_logs() as logs:
        await gateway.ask()
        await gateway.http.get("/v1/runs/run_1")
        await gateway.http.get("/v1/runs/mine")
        await gateway.http.get("/v1/tasks")
        requests = await logged_requests(logs, 4)
    assert [line.get("run_id") for line in requests] == ["run_1", "run_1", None, None]
