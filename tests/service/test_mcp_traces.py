"""Traces of agents' requests contain methods and tools, and no content of clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from services.common import tracing
from tests.fakes.tracing import RecordedTraces
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.mcp_clients import MODES, opened_client

ABOVE = trace.SpanContext(0xABCD, 0xEF, is_remote=True, trace_flags=trace.TraceFlags(1))
SECRET = "words-that-only-an-agent-may-know"
CLIENT = "mcp-python-sdk"

both_forms = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def gateway(traces: RecordedTraces, tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with asyncio.timeout(30), start_gateway(tmp_path) as opened:
        traces.clear()
        yield opened


def ours(traces: RecordedTraces) -> list[ReadableSpan]:
    """Spans without those of the client, which runs in this process."""
    done = traces.get_finished_spans()
    return [span for span in done if (span.instrumentation_scope and span.instrumentation_scope.name) != CLIENT]


@both_forms
async def test_call_and_run_are_spans_of_client_trace(
    gateway: GatewayUnderTest, traces: RecordedTraces, mode: str
) -> None:
    async with opened_client(gateway.http_port, mode=mode) as agent:
        with trace.use_span(trace.NonRecordingSpan(ABOVE)):
            assert not (await agent.call_tool("ask", {"request": SECRET, "policy": "local"})).is_error
    (tool,) = await traces.ended("tools/call ask", 1)
    run = next(
        span
        for span in await traces.ended("hugginggpt.internal.v1.OrchestratorService/CreateRun", 2)
        if span.kind is trace.SpanKind.CLIENT
    )
    assert tool.context
    assert tool.context.trace_id == ABOVE.trace_id
    assert run.parent == tool.context
    assert tool.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ask",
    }
    assert not any(SECRET in span.to_json() for span in ours(traces))


async def test_request_without_trace_is_child_of_http_span(gateway: GatewayUnderTest, traces: RecordedTraces) -> None:
    message = {"jsonrpc": "2.0", "id": SECRET, "method": "tools/call", "params": {"name": "tasks", "arguments": {}}}
    await _post(gateway, message, headers={"traceparent": tracing.traceparent(ABOVE)})
    (tool,) = await traces.ended("tools/call tasks", 1)
    (http,) = await traces.ended("POST /mcp", 1)
    assert http.context
    assert tool.parent
    assert tool.parent.span_id == http.context.span_id
    assert not any(SECRET in span.to_json() for span in ours(traces))


@both_forms
async def test_errors_are_traced_without_content(gateway: GatewayUnderTest, traces: RecordedTraces, mode: str) -> None:
    async with opened_client(gateway.http_port, mode=mode) as agent:
        assert (await agent.call_tool(SECRET, {SECRET: SECRET})).is_error
        with pytest.raises(MCPError, match=SECRET):
            await agent.read_resource(f"hugginggpt://{SECRET}")
    (tool,) = await traces.ended("tools/call", 1)
    (read,) = await traces.ended("resources/read", 1)
    assert [(span.attributes or {})["error.type"] for span in (tool, read)] == ["tool_error", "MCPError"]
    assert not any(SECRET in span.to_json() for span in ours(traces))


async def test_unknown_method_has_no_span(gateway: GatewayUnderTest, traces: RecordedTraces) -> None:
    await _post(gateway, {"jsonrpc": "2.0", "id": 1, "method": SECRET, "params": {"name": SECRET}})
    assert (await traces.ended("POST /mcp", 1))[0].context
    assert not any(SECRET in span.to_json() for span in ours(traces))


async def _post(gateway: GatewayUnderTest, message: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    all_headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        **(headers or {}),
    }
    await gateway.http.post("/mcp", content=json.dumps(message), headers=all_headers)
