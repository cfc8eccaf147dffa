"""Draws the trace in services/common/README.md: runs the demo's request and draws its spans.

Usage: python -m tests.support.trace_picture.

Each service is a separate process and sends spans with OTLP; a call is drawn once, as its server's span.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.bench.processes import service
from tests.bench.service_processes import start_services
from tests.fakes.collector import Collected, collecting
from tests.support.waterfall import Bar, draw_waterfall

ROOT = Path(__file__).parents[2]
PICTURES = {scheme: ROOT / ".github" / f"trace-{scheme}.svg" for scheme in ("light", "dark")}
SIGN = ROOT / "tests" / "data" / "sign.png"
REQUEST = "Read the text in this image aloud and tell me whether it sounds happy"
TASKS = frozenset({"image-to-text", "text-to-speech", "text-classification"})
PACKAGES = re.compile(r"^hugginggpt\.(internal\.)?v1\.")
SECONDS = 120.0


@dataclass(frozen=True)
class ServiceSpan:
    """A span and the service that sent it."""

    service: str
    span: Span


async def main() -> None:
    async with asyncio.timeout(SECONDS), collecting() as collected:
        os.environ.update(collected.settings)
        with TemporaryDirectory() as home:
            async with _run_services(Path(home)) as url:
                trace_id = await _run_demo(url)
            bars = waterfall(_spans_of(collected, trace_id))
    for scheme, picture in PICTURES.items():
        picture.write_text(draw_waterfall(f"“{REQUEST}”, a file: {SIGN.name}", bars, scheme), encoding="utf-8")


@asynccontextmanager
async def _run_services(home: Path) -> AsyncIterator[str]:
    """Runs all services and the lite expert; yields the gateway's URL. All spans are exported at exit."""
    async with service("experts.lite", "EXPERT", home) as expert, start_services(home, expert.address, {}) as (_, http):
        yield f"http://{http}"


async def _run_demo(url: str) -> str:
    """Trace of a run with loaded models."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        await _wait_for_tasks(client)
        for _ in range(2):
            spec = json.dumps({"request": REQUEST, "bypass_memo": True})
            form = [("spec", (None, spec)), ("file", (SIGN.name, SIGN.read_bytes()))]
            answer = await client.post("/v1/runs", files=form, headers={"Prefer": "wait=60"})  # type: ignore[arg-type]  # a file and a field
            if answer.json().get("state") != "completed":
                raise RuntimeError(f"the run has failed: {answer.text}")
    return answer.headers["x-trace-id"]


async def _wait_for_tasks(client: httpx.AsyncClient) -> None:
    """Waits until all tasks are offered."""
    while True:
        answer = (await client.get("/v1/tasks")).json()
        if {task["name"] for task in answer.get("data", ())} >= TASKS:
            return
        await asyncio.sleep(0.1)


def _spans_of(collected: Collected, trace_id: str) -> list[ServiceSpan]:
    return [ServiceSpan(service, span) for service, span in collected.complete_spans if span.trace_id.hex() == trace_id]


def waterfall(spans: Sequence[ServiceSpan]) -> list[Bar]:
    """Bars from the root span inwards, in order of time; omits a client span if the server's span exists."""
    by_key = {each.span.span_id: each for each in spans}
    served = {each.span.parent_span_id for each in spans if each.span.kind == Span.SPAN_KIND_SERVER}
    omitted = {key for key in served if key in by_key and by_key[key].span.kind == Span.SPAN_KIND_CLIENT}
    first_start = min(each.span.start_time_unix_nano for each in spans)
    children: dict[bytes, list[ServiceSpan]] = {}
    for each in sorted((each for key, each in by_key.items() if key not in omitted), key=_start):
        children.setdefault(_parent_key(each, by_key, omitted), []).append(each)
    return list(_bars(b"", 0, children, first_start))


def _bars(parent: bytes, depth: int, children: Mapping[bytes, Sequence[ServiceSpan]], first_start: int) -> list[Bar]:
    bars = []
    for each in children.get(parent, ()):
        span = each.span
        start, end = (
            (nanoseconds - first_start) / 1e6 for nanoseconds in (span.start_time_unix_nano, span.end_time_unix_nano)
        )
        links = tuple(link.span_id for link in span.links)
        bars.append(Bar(span.span_id, PACKAGES.sub("", span.name), each.service, depth, start, end, links))
        bars += _bars(span.span_id, depth + 1, children, first_start)
    return bars


def _parent_key(each: ServiceSpan, by_key: Mapping[bytes, ServiceSpan], omitted: set[bytes]) -> bytes:
    """Id of the nearest ancestor that is drawn; empty for none."""
    key = each.span.parent_span_id
    while key in omitted:
        key = by_key[key].span.parent_span_id
    return key if key in by_key else b""


def _start(each: ServiceSpan) -> int:
    return each.span.start_time_unix_nano


if __name__ == "__main__":
    asyncio.run(main())
