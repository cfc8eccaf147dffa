"""Draws the trace in the README: runs the demo's request and draws its spans.

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
from tests.support.waterfall import Bar, drawn

ROOT = Path(__file__).parents[2]
PICTURES = {scheme: ROOT / ".github" / f"trace-{scheme}.svg" for scheme in ("light", "dark")}
SIGN = ROOT / "tests" / "data" / "sign.png"
REQUEST = "Read the text in this image aloud and tell me whether it sounds happy"
TASKS = frozenset({"image-to-text", "text-to-speech", "text-classification"})
PACKAGES = re.compile(r"^hugginggpt\.(internal\.)?v1\.")
SECONDS = 120.0


@dataclass(frozen=True)
class Told:
    """A span and the service that sent it."""

    service: str
    span: Span


async def main() -> None:
    async with asyncio.timeout(SECONDS), collecting() as collected:
        os.environ.update(collected.settings)
        with TemporaryDirectory() as home:
            async with _standing(Path(home)) as url:
                trace_id = await _asked(url)
            bars = waterfall(_of(collected, trace_id))
    for scheme, picture in PICTURES.items():
        picture.write_text(drawn(f"“{REQUEST}”, a file: {SIGN.name}", bars, scheme), encoding="utf-8")


@asynccontextmanager
async def _standing(home: Path) -> AsyncIterator[str]:
    """Runs all services and the lite expert; yields the gateway's URL. All spans are exported at exit."""
    async with service("experts.lite", "EXPERT", home) as expert, start_services(home, expert.address, {}) as (_, http):
        yield f"http://{http}"


async def _asked(url: str) -> str:
    """Trace of a run with loaded models."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        await _offered(client)
        for _ in range(2):
            spec = json.dumps({"request": REQUEST, "bypass_memo": True})
            form = [("spec", (None, spec)), ("file", (SIGN.name, SIGN.read_bytes()))]
            answer = await client.post("/v1/runs", files=form, headers={"Prefer": "wait=60"})  # type: ignore[arg-type]  # a file and a field
            if answer.json().get("state") != "completed":
                raise RuntimeError(f"the run has failed: {answer.text}")
    return answer.headers["x-trace-id"]


async def _offered(client: httpx.AsyncClient) -> None:
    """Waits until all tasks are offered."""
    while True:
        answer = (await client.get("/v1/tasks")).json()
        if {task["name"] for task in answer.get("data", ())} >= TASKS:
            return
        await asyncio.sleep(0.1)


def _of(collected: Collected, trace_id: str) -> list[Told]:
    return [Told(service, span) for service, span in collected.whole if span.trace_id.hex() == trace_id]


def waterfall(told: Sequence[Told]) -> list[Bar]:
    """Bars from the root span inwards, in order of time; omits a client span if the server's span exists."""
    spans = {each.span.span_id: each for each in told}
    served = {each.span.parent_span_id for each in told if each.span.kind == Span.SPAN_KIND_SERVER}
    asking = {key for key in served if key in spans and spans[key].span.kind == Span.SPAN_KIND_CLIENT}
    began = min(each.span.start_time_unix_nano for each in told)
    shown = sorted((each for key, each in spans.items() if key not in asking), key=_start)
    inside: dict[bytes, list[Told]] = {}
    for each in shown:
        inside.setdefault(_above(each, spans, asking), []).append(each)
    return list(_bars(b"", 0, inside, began))


def _bars(above: bytes, depth: int, inside: Mapping[bytes, Sequence[Told]], began: int) -> list[Bar]:
    bars = []
    for each in inside.get(above, ()):
        span = each.span
        start, end = ((moment - began) / 1e6 for moment in (span.start_time_unix_nano, span.end_time_unix_nano))
        links = tuple(link.span_id for link in span.links)
        bars.append(Bar(span.span_id, PACKAGES.sub("", span.name), each.service, depth, start, end, links))
        bars += _bars(span.span_id, depth + 1, inside, began)
    return bars


def _above(told: Told, spans: Mapping[bytes, Told], asking: set[bytes]) -> bytes:
    """Id of the span in which it is drawn; empty for none."""
    key = told.span.parent_span_id
    while key in asking:
        key = spans[key].span.parent_span_id
    return key if key in spans else b""


def _start(told: Told) -> int:
    return told.span.start_time_unix_nano


if __name__ == "__main__":
    asyncio.run(main())
