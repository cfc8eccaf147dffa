"""The whole house, traced: a run is one trace through all its processes."""

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
TRACE, ABOVE = "abcd" * 8, "ef" * 8


WANTED = {
    ("light", "POST /v1/runs"),
    ("orchestrator", "invoke_workflow"),
    ("orchestrator", "plan"),
    ("orchestrator", "execute_tool image-to-text"),
    ("orchestrator", "execute_tool text-to-speech"),
    ("expert-lite", "run_batch rapidocr"),
    ("expert-lite", "run_batch espeak-ng"),
}


async def arrived(collected: Collected) -> None:
    """Waits until all that is wanted of the run has been sent."""
    while not {(service, span.name) for service, span in of_trace(collected).values()} >= WANTED:
        await collected.spans.get()


def of_trace(collected: Collected) -> Mapping[bytes, tuple[str, Span]]:
    """Spans of the run, and the services that sent them, by their ids."""
    found = ((service, span) for service, span in collected.whole if span.trace_id.hex() == TRACE)
    return {span.span_id: (service, span) for service, span in found}


def above(spans: Mapping[bytes, tuple[str, Span]], span: Span) -> list[str]:
    """Where a span is, up to what the client said."""
    names = []
    while span.parent_span_id in spans:
        span = spans[span.parent_span_id][1]
        names.append(span.name)
    assert span.parent_span_id.hex() == ABOVE
    return names


async def asked(url: str) -> None:
    headers = {"traceparent": f"00-{TRACE}-{ABOVE}-01", "Prefer": "wait=60"}
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        files = {"file": ("sign.png", SIGN.read_bytes(), "image/png")}
        answer = await client.post("/v1/runs", data={"request": REQUEST}, files=files, headers=headers)
    assert answer.json()["state"] == "completed", answer.text


async def test_run_is_one_trace_from_client_to_expert_batches(tmp_path: Path) -> None:
    async with asyncio.timeout(120), collecting() as collected:
        local_stack = start_local_stack(tmp_path, **collected.settings)
        with_it = await asyncio.to_thread(local_stack.__enter__)
        try:
            await asked(with_it.url)
            await arrived(collected)
        finally:
            await asyncio.to_thread(local_stack.__exit__, None, None, None)
    spans = of_trace(collected)
    batches = [span for service, span in spans.values() if span.name.startswith("run_batch ")]
    assert len(batches) == 2
    for batch in batches:
        assert spans[batch.span_id][0] == "expert-lite"
        place = above(spans, batch)
        assert place[2].startswith("execute_tool ")
        assert place[3] == "invoke_workflow"
        assert place[-1] == "POST /v1/runs"
