"""What the gateway adds to a run, what it gives of small answers, and what streams cost on which nothing happens."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS
from services.common.channel import connect
from services.local.ports import free_address
from tests.bench.http_client import Connection, connected
from tests.bench.load import Client, supplied
from tests.bench.processes import Running, service, staged
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script
from tests.fakes import FakeExpert, card

RUNS = 150
REQUESTS = 4_000
CONNECTIONS = 8
STREAMS = 2_000
SINGLE = Script("single", 1)
IDLE = Script("single", 1, plan=600.0)
"""A run of which nothing comes but its beginning."""


async def rows() -> list[Row]:
    """Figures of the gateway's doors."""
    with TemporaryDirectory() as home:
        async with _standing(Path(home)) as (gateway, port, orchestrator):
            alone, through = await _compared(port, orchestrator.address)
            return [
                Row(
                    "gateway.added_ms",
                    round(1000 * (through - alone), 2),
                    "ms",
                    3,
                    round(1000 * alone, 2),
                    f"POST /v1/runs that waits for one no-op task, {NAMED}, less the same at the "
                    f"orchestrator, the reference; median of {RUNS}",
                ),
                await _small(gateway, port),
                await _idle(gateway, port),
            ]


@asynccontextmanager
async def _standing(home: Path) -> AsyncIterator[tuple[Running, int, Running]]:
    """A gateway and its HTTP port, a real orchestrator with its cast, and a real selector with an expert."""
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(staged(home))
        expert = await stack.enter_async_context(FakeExpert("noop", [card("noop", "summarization")]).serving())
        selector = await stack.enter_async_context(service("services.selector", "SELECTOR", home, experts=expert))
        address = free_address("127.0.0.1:0", option="")
        told = {"orchestrator": stage.orchestrator.address, "selector": selector.address, "http_listen": address}
        gateway = await stack.enter_async_context(service("gateway", "GATEWAY", home, **told))
        yield gateway, int(address.rpartition(":")[2]), stage.orchestrator


async def _compared(port: int, orchestrator: str) -> tuple[float, float]:
    """Median seconds of a run at the orchestrator itself, and through the gateway; by turns."""
    request, alone, through = supplied(SINGLE, RUN_MODE_RESULTS), list[float](), list[float]()
    plan = [{"id": 1, "task": "noop", "arguments": {"first": "one two three"}, "pinned_model": "0"}]
    body = json.dumps({"plan": plan, "mode": "results", "bypass_memo": True}).encode()
    async with connect(orchestrator) as channel, connected(port) as http:
        client = Client(channel)
        for _ in range(RUNS):
            alone.append(await client.run(request))
            begun = time.perf_counter()
            answer = json.loads(await http.post("/v1/runs", body, prefer="wait=30"))
            through.append(time.perf_counter() - begun)
            if answer["state"] != "completed":
                raise RuntimeError(f"a run of the benchmark failed: {answer}")
    return median(alone, digits=9), median(through, digits=9)


async def _small(gateway: Running, port: int) -> Row:
    """GET /v1/tasks while the gateway has one core; who asks has the others."""
    with gateway.on_one_core():
        async with AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(connected(port)) for _ in range(CONNECTIONS)]
            used, begun = gateway.cpu_seconds(), time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for line in lines:
                    group.create_task(_ask(line, REQUESTS // CONNECTIONS))
            taken, worked = time.perf_counter() - begun, gateway.cpu_seconds() - used
    return Row(
        "gateway.tasks_per_s",
        round(REQUESTS / taken),
        "/s",
        800,
        round(REQUESTS / worked),
        f"GET /v1/tasks, {CONNECTIONS} connections, the gateway on one core; reference: by its processor time",
        at_least=True,
    )


async def _ask(line: Connection, count: int) -> None:
    for _ in range(count):
        await line.get("/v1/tasks")


async def _idle(gateway: Running, port: int) -> Row:
    """So many streams of one run that waits, each of which has had its first events."""
    async with AsyncExitStack() as stack:
        starting = await stack.enter_async_context(connected(port))
        body = json.dumps({"request": IDLE.words, "bypass_memo": True}).encode()
        run_id = json.loads(await starting.post("/v1/runs", body))["run_id"]
        before = await gateway.resident_mb()
        for _ in range(STREAMS):
            line = await stack.enter_async_context(connected(port))
            await line.stream(f"/v1/runs/{run_id}/events")
        resident = await gateway.resident_mb()
        await starting.post(f"/v1/runs/{run_id}/cancel", b"{}")
    return Row(
        "gateway.idle_streams_mb",
        round(resident),
        "MB",
        400,
        round(before),
        f"resident with {STREAMS} event streams of a run that waits; reference: with none",
    )
