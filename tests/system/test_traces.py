"""A run is one trace across all processes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.fakes.collector import Collected, collecting
from tests.system.conftest import ROOT, start_local_stack

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
REQUEST = "Read the text in this image aloud"
TRACE, CLIENT_SPAN = "abcd" * 8, "ef" * 8


EXPECTED_SPANS = {
    ("services", "POST /v1/runs"),
    ("orchestrator", "invoke_workflow"),
    ("orchestrator", "plan"),
    ("orchestrator", "execute_tool image-to-text"),
    ("orchestrator", "execute_tool text-to-speech"),
    ("expert-lite", "run_batch rapidocr"),
    ("expert-lite", "run_batch espeak-ng"),
}


async def wait_for_spans(collected: Collected) -> None:
    """Waits until the collector has received all expected spans."""
    while not {(service, span.name) for service, span in of_trace(collected).values()} >= EXPECTED_SPANS:
        await collected.spans.get()


def of_trace(collected: Collected) -> Mapping[bytes, tuple[str, Span]]:
    """Spans of the run with the services that sent them, by span id."""
    found = ((service, span) for service, span in collected.complete_spans if span.trace_id.hex() == TRACE)
    return {span.span_id: (service, span) for service, span in found}


def ancestors(spans: Mapping[bytes, tuple[str, Span]], span: Span) -> list[str]:
    """Names of a span's ancestors, up to the client's span."""
    names = []
    while span.parent_span_id in spans:
        span = spans[span.parent_span_id][1]
        names.append(span.name)
    assert span.parent_span_id.hex() == CLIENT_SPAN
    return names


async def send_request(url: str) -> None:
    headers = {"traceparent": f"00-{TRACE}-{CLIENT_SPAN}-01", "Prefer": "wait=60"}
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        files = {"file": ("sign.png", SIGN.read_bytes(), "image/png")}
        answer = await client.post("/v1/runs", data={"request": REQUEST}, files=files, headers=headers)
    assert answer.json()["state"] == "completed", answer.text


async def test_run_is_one_trace_from_client_to_expert_batches(tmp_path: Path) -> None:
    async with asyncio.timeout(120), collecting() as collected:
        local_stack = start_local_stack(tmp_path, **collected.settings)
        stack = await asyncio.to_thread(local_stack.__enter__)
        try:
            await send_request(stack.url)
            await wait_for_spans(collected)
        finally:
            await asyncio.to_thread(local_stack.__exit__, None, None, None)
    spans = of_trace(collected)
    batches = [span for service, span in spans.values() if span.name.startswith("run_batch ")]
    assert len(batches) == 2
    for batch in batches:
        assert spans[batch.span_id][0] == "expert-lite"
        parents = ancestors(spans, batch)
        assert parents[2].startswith("execute_tool ")
        assert parents[3] == "invoke_workflow"
        assert parents[-1] == "POST /v1/runs"
