"""Latency that the gateway adds to a run, its rate of small responses, and the memory of idle event streams."""

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
from tests.bench.load import Client, supplied_run
from tests.bench.processes import Running, service, start_testbed
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script
from tests.fakes import FakeExpert, card

RUNS = 150
REQUESTS = 4_000
CONNECTIONS = 8
STREAMS = 2_000
SINGLE = Script("single", 1)
IDLE = Script("single", 1, plan=600.0)
"""A run that waits for its plan, so that its stream is idle after the first events."""


async def rows() -> list[Row]:
    """Figures of the gateway's HTTP API."""
    with TemporaryDirectory() as home:
        async with _start(Path(home)) as (gateway, port, orchestrator):
            direct, through = await _latencies(port, orchestrator.address)
            return [
                Row(
                    "gateway.added_ms",
                    round(1000 * (through - direct), 2),
                    "ms",
                    3,
                    round(1000 * direct, 2),
                    f"POST /v1/runs that waits for one no-op task, {NAMED}, less the same at the "
                    f"orchestrator, the reference; median of {RUNS}",
                ),
                await _small_responses(gateway, port),
                await _idle_streams(gateway, port),
            ]


@asynccontextmanager
async def _start(home: Path) -> AsyncIterator[tuple[Running, int, Running]]:
    """Starts an orchestrator with scripted services, a selector with an expert, and a gateway.

    Yields:
        The gateway, its HTTP port, and the orchestrator.
    """
    async with AsyncExitStack() as stack:
        testbed = await stack.enter_async_context(start_testbed(home))
        expert = await stack.enter_async_context(FakeExpert("noop", [card("noop", "summarization")]).serving())
        selector = await stack.enter_async_context(service("services.selector", "SELECTOR", home, experts=expert))
        address = free_address("127.0.0.1:0", option="")
        settings = {"orchestrator": testbed.orchestrator.address, "selector": selector.address, "http_listen": address}
        gateway = await stack.enter_async_context(service("gateway", "GATEWAY", home, **settings))
        yield gateway, int(address.rpartition(":")[2]), testbed.orchestrator


async def _latencies(port: int, orchestrator: str) -> tuple[float, float]:
    """Median seconds of a run at the orchestrator, and of one through the gateway; measured alternately."""
    request, direct, through = supplied_run(SINGLE, RUN_MODE_RESULTS), list[float](), list[float]()
    plan = [{"id": 1, "task": "noop", "arguments": {"first": "one two three"}, "pinned_model": "0"}]
    body = json.dumps({"plan": plan, "mode": "results", "bypass_memo": True}).encode()
    async with connect(orchestrator) as channel, connected(port) as http:
        client = Client(channel)
        for _ in range(RUNS):
            direct.append(await client.run(request))
            started = time.perf_counter()
            run = json.loads(await http.post("/v1/runs", body, prefer="wait=30"))
            through.append(time.perf_counter() - started)
            if run["state"] != "completed":
                raise RuntimeError(f"a run of the benchmark failed: {run}")
    return median(direct, digits=9), median(through, digits=9)


async def _small_responses(gateway: Running, port: int) -> Row:
    """Rate of GET /v1/tasks while the gateway has one core, and the client the others."""
    with gateway.on_one_core():
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(connected(port)) for _ in range(CONNECTIONS)]
            used, started = gateway.cpu_seconds(), time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for connection in connections:
                    group.create_task(_list_tasks(connection, REQUESTS // CONNECTIONS))
            taken, worked = time.perf_counter() - started, gateway.cpu_seconds() - used
    return Row(
        "gateway.tasks_per_s",
        round(REQUESTS / taken),
        "/s",
        800,
        round(REQUESTS / worked),
        f"GET /v1/tasks, {CONNECTIONS} connections, the gateway on one core; reference: by its processor time",
        at_least=True,
    )


async def _list_tasks(connection: Connection, count: int) -> None:
    for _ in range(count):
        await connection.get("/v1/tasks")


async def _idle_streams(gateway: Running, port: int) -> Row:
    """Memory of the gateway with STREAMS event streams of one run that waits, after their first events."""
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(connected(port))
        body = json.dumps({"request": IDLE.request, "bypass_memo": True}).encode()
        run_id = json.loads(await control.post("/v1/runs", body))["run_id"]
        before = await gateway.resident_mb()
        for _ in range(STREAMS):
            connection = await stack.enter_async_context(connected(port))
            await connection.stream(f"/v1/runs/{run_id}/events")
        resident = await gateway.resident_mb()
        await control.post(f"/v1/runs/{run_id}/cancel", b"{}")
    return Row(
        "gateway.idle_streams_mb",
        round(resident),
        "MB",
        400,
        round(before),
        f"resident with {STREAMS} event streams of a run that waits; reference: with none",
    )
