"""Fixtures of service tests: an orchestrator with scripted peers, expert hosts, recorded traces, no LLM."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from protos.hugginggpt.internal.v1 import (
    planner_pb2,
    planner_pb2_grpc,
    responder_pb2,
    responder_pb2_grpc,
    selector_pb2,
    selector_pb2_grpc,
)
from protos.hugginggpt.v1 import expert_pb2, expert_pb2_grpc
from services.common.server import serving
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.fakes.tracing import RecordedTraces, record_traces
from tests.support.expert_host import Batches, Start, hosts
from tests.support.orchestrator import (
    Expert,
    OrchestratorUnderTest,
    Planner,
    Responder,
    ScriptedPeers,
    Selector,
    candidate,
    connected,
    registration,
)

LLM_SETTINGS = ("LLM_", "PLANNER_LLM_", "SELECTOR_LLM_", "RESPONDER_LLM_", "EXPERT_LLM_")


@pytest.fixture
def no_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the configuration of LLM endpoints, and finds none on this machine."""
    for name in [name for name in os.environ if name.startswith(LLM_SETTINGS)]:
        monkeypatch.delenv(name)
    ports: dict[int, str] = {}
    monkeypatch.setattr("gateway.cli.llm_probe.USUAL_PORTS", ports)


@pytest.fixture
def traces() -> Iterator[RecordedTraces]:
    """Spans of this process that end while the test runs."""
    with record_traces() as recorded:
        yield recorded


@pytest.fixture
async def peers() -> ScriptedPeers:
    """Scripted planner, selector, responder and expert; each test sets what it needs."""
    return ScriptedPeers()


@pytest.fixture
async def peer_addresses(peers: ScriptedPeers) -> AsyncIterator[dict[str, str]]:
    """Addresses of servers that act as scripted in `peers`, by service name."""
    services = {
        "planner": (planner_pb2, "PlannerService", planner_pb2_grpc.add_PlannerServiceServicer_to_server, Planner),
        "selector": (
            selector_pb2,
            "SelectorService",
            selector_pb2_grpc.add_SelectorServiceServicer_to_server,
            Selector,
        ),
        "responder": (
            responder_pb2,
            "ResponderService",
            responder_pb2_grpc.add_ResponderServiceServicer_to_server,
            Responder,
        ),
        "expert": (expert_pb2, "ExpertService", expert_pb2_grpc.add_ExpertServiceServicer_to_server, Expert),
    }
    async with AsyncExitStack() as stack:
        addresses = {}
        for name, (module, service, add, servicer) in services.items():
            running = await stack.enter_async_context(
                serving(registration(add, servicer(peers)), module.DESCRIPTOR.services_by_name[service])
            )
            addresses[name] = f"127.0.0.1:{running.port}"
        peers.candidates.append(candidate("model", addresses["expert"]))
        yield addresses


def orchestrator_settings(peer_addresses: Mapping[str, str], folder: Path, journal: str = "") -> Settings:
    """Returns settings of an orchestrator with these peers.

    Args:
        peer_addresses: by service name.
        folder: for artifacts, and for the journal if none is given.
        journal: path or URL.
    """
    return Settings(
        listen="127.0.0.1:0",
        planner=peer_addresses["planner"],
        selector=peer_addresses["selector"],
        responder=peer_addresses["responder"],
        journal=journal or folder / "journal.sqlite",
        artifacts_url=(folder / "artifacts").as_uri(),
        drain_seconds=0,
    )


@pytest.fixture
def settings(peer_addresses: dict[str, str], tmp_path: Path) -> Settings:
    return orchestrator_settings(peer_addresses, tmp_path)


@pytest.fixture
async def orchestrator(peers: ScriptedPeers, settings: Settings) -> AsyncIterator[OrchestratorUnderTest]:
    """A real orchestrator in this process, between scripted peers."""
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        yield OrchestratorUnderTest(peers, stub, settings)


@pytest.fixture
async def start_host(tmp_path: Path) -> AsyncIterator[Start]:
    async with hosts(tmp_path) as start_host:
        yield start_host


@pytest.fixture
async def batching_model() -> AsyncIterator[Batches]:
    batching_model = Batches()
    yield batching_model
    batching_model.release.set()
