"""Queries of dashboards, alerts and scalers return data from a Prometheus that scrapes running services."""

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1 import artifact_pb2, expert_pb2, run_pb2
from services.common.channel import connect
from services.common.errors import ModelFailed
from tests.fakes import ErrorReply, ScriptedLLM, ScriptedReply
from tests.fakes.llm.plausible import PlausibleScript
from tests.observability.promql import Known, query_errors
from tests.observability.queries import Query, of_dashboards, of_rules, of_scalers
from tests.observability.server import Prometheus, reading
from tests.support.logs import logged
from tests.support.orchestrator import END, ScriptedPeers, process_settings, task
from tests.support.processes import Start, processes
from tests.system.conftest import ROOT, LocalStack, start_local_stack

pytestmark = [pytest.mark.slow, pytest.mark.needs("prometheus")]

SIGN = ROOT / "tests" / "data" / "sign.png"
THIRD_PARTY: Known = {
    "ALERTS": {"alertname", "alertstate", "severity"},
    "otelcol_receiver_refused_spans": set(),
    "otelcol_exporter_send_failed_spans": set(),
    "otelcol_exporter_enqueue_failed_spans": set(),
}
"""Metrics of Prometheus and the collector themselves."""

MAY_BE_EMPTY = {
    "overview: Firing alerts",
    "overview: Share of 5xx and 429 responses",
    "overview: Failed calls per second",
    "overview: Runs taken over",
    "experts: Waiting and running calls",
    "cost: Failed calls per minute, by reason",
}
"""Panels that are empty without errors or without current traffic."""


def consecutive_ports(count: int) -> int:
    """The first of several consecutive free ports, below the range of ephemeral ports."""
    while True:
        first = secrets.randbelow(10_000) + 20_000
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(closing(socket.create_server(("127.0.0.1", port))))
            return first


@asynccontextmanager
async def busy(home: Path, base_url: str, first: str) -> AsyncIterator[LocalStack]:
    """Starts a local stack with an LLM, prices and little memory for models; metrics ports start at `first`."""
    prices = {"LLM_PRICES": '{"scripted": {"input": 9, "output": 9}}', "ORCHESTRATOR_PRICES": '{"cpu": 0.01}'}
    llm = {"LLM_RETRY_SECONDS": "0.01", "LLM_BASE_URL": base_url, "LLM_MODEL": "scripted", "LLM_INTERNAL": "true"}
    local_stack = start_local_stack(home, METRICS_LISTEN=first, EXPERT_MEMORY_BYTES="1", **llm, **prices)
    stack = await asyncio.to_thread(local_stack.__enter__)
    try:
        yield stack
    finally:
        await asyncio.to_thread(local_stack.__exit__, None, None, None)


async def broken(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    raise ModelFailed("it broke", remedy="none")


@asynccontextmanager
async def failing(
    start: Start, peers: ScriptedPeers, peer_addresses: dict[str, str], folder: Path
) -> AsyncIterator[str]:
    """Runs an orchestrator whose only model fails until its circuit opens; yields the address of its metrics."""
    peers.plan(task(1), END)
    peers.infer["model"] = broken
    settings = {**process_settings(peer_addresses, folder / "failing.sqlite"), "METRICS_LISTEN": "127.0.0.1:0"}
    process = await start("-m", "services.orchestrator", **settings)
    metrics, served = [(await logged(process, event))["port"] for event in ("metrics", "serving")]
    assert process.stderr
    drained = asyncio.create_task(process.stderr.read())
    async with connect(f"127.0.0.1:{served}") as channel:
        stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
        for _ in range(6):
            async for _ in stub.CreateRun(
                orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="go")), timeout=30
            ):
                pass
        yield f"127.0.0.1:{metrics}"
    process.kill()
    await drained


async def rare(start: Start) -> str:
    process = await start("-m", "tests.observability.rare")
    return f"127.0.0.1:{(await logged(process, 'metrics'))['port']}"


class UnreliableLLM:
    """An LLM that a test can make unavailable."""

    down = False

    def __call__(self, body: Any) -> ScriptedReply:
        return ErrorReply(500) if self.down else PlausibleScript()(body)


async def send_requests(local_stack: LocalStack) -> None:
    for request in ("Read the text in this image aloud", "Read the text in this image and tell me whether it is happy"):
        result: Any = await asyncio.to_thread(local_stack.ask, request, SIGN)
        assert result["status"] == "completed", json.dumps(result)


@asynccontextmanager
async def watched(peers: ScriptedPeers, peer_addresses: dict[str, str], folder: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus that has scraped the services before and after requests."""
    first = consecutive_ports(3)
    async with (
        ScriptedLLM.serving(llm_behaviour := UnreliableLLM()) as llm,
        processes(300) as start,
        busy(folder / "home", llm.base_url, f"127.0.0.1:{first}") as local_stack,
        failing(start, peers, peer_addresses, folder) as orchestrator,
    ):
        own = [f"127.0.0.1:{first + number}" for number in range(len(local_stack.children))]
        await send_requests(local_stack)
        async with reading([*own, orchestrator, await rare(start)], folder) as prometheus:
            await send_requests(local_stack)
            llm_behaviour.down = True
            await send_requests(local_stack)
            await prometheus.read_all()
            yield prometheus


async def test_dashboard_queries_are_valid_and_return_data(
    peers: ScriptedPeers, peer_addresses: dict[str, str], tmp_path: Path
) -> None:
    async with watched(peers, peer_addresses, tmp_path) as prometheus:
        known = {**await prometheus.known(), **THIRD_PARTY}
        queries = [*of_dashboards(), *of_rules(), *of_scalers()]
        wrong = [f"{query.location}: {error}" for query in queries for error in query_errors(query.text, known)]
        empty = {query.location for query in of_dashboards() if not await prometheus.ask(query.text)}
        await _assert_queries_are_valid(prometheus, queries)
    assert wrong == []
    assert sorted(empty - MAY_BE_EMPTY) == []


async def _assert_queries_are_valid(prometheus: Prometheus, queries: list[Query]) -> None:
    for query in queries:
        await prometheus.ask(query.text)
