"""A collector that is absent, silent or too slow loses telemetry and affects nothing else."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1 import run_pb2
from services.common import call_context
from services.common.channel import connect
from tests.fakes.collector import OFTEN, refusing, silent
from tests.support.logs import logged
from tests.support.orchestrator import END, ScriptedPeers, process_settings, ref, task
from tests.support.processes import Start, processes

pytestmark = pytest.mark.slow

RUNS, AT_ONCE = 60, 8
FULL = {"OTEL_BSP_MAX_QUEUE_SIZE": "4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"}
"""Settings with which the export queue is full after one run."""

CollectorFactory = Callable[[], AbstractContextManager[Mapping[str, str]]]


@contextmanager
def never_answers() -> Iterator[Mapping[str, str]]:
    with silent() as endpoint:
        yield {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **OFTEN}


@contextmanager
def refuses() -> Iterator[Mapping[str, str]]:
    with refusing() as endpoint:
        yield {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **OFTEN}


@contextmanager
def is_full() -> Iterator[Mapping[str, str]]:
    with silent() as endpoint:
        yield {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **OFTEN, **FULL}


@contextmanager
def is_nonsense() -> Iterator[Mapping[str, str]]:
    yield {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://no such host:-1", **OFTEN}


async def run_and_stop(start: Start, settings: Mapping[str, str]) -> None:
    """Starts an orchestrator, has it complete all runs, and stops it."""
    process = await start("-m", "services.orchestrator", **settings)
    port = (await logged(process, "serving"))["port"]
    assert process.stderr
    drained = asyncio.create_task(process.stderr.read())
    async with connect(f"127.0.0.1:{port}") as channel:
        stub, permits = orchestrator_pb2_grpc.OrchestratorServiceStub(channel), asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for _ in range(RUNS):
                group.create_task(_ended(stub, permits))
    process.terminate()
    assert await process.wait() == 0
    await drained


async def _ended(stub: Any, permits: asyncio.Semaphore) -> None:
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    async with permits:
        events = [event async for event in stub.CreateRun(request, timeout=30, metadata=call_context.metadata())]
    assert events[-1].run_ended.state == run_pb2.RUN_STATE_COMPLETED


@pytest.mark.parametrize("collector", [never_answers, refuses, is_full, is_nonsense])
async def test_unavailable_collector_fails_no_run_and_does_not_delay_shutdown(
    collector: CollectorFactory, peers: ScriptedPeers, peer_addresses: dict[str, str], tmp_path: Path
) -> None:
    peers.plan(task(1), task(2, text=ref(1)), END)
    async with processes(100) as start:
        with collector() as settings:
            await run_and_stop(start, {**process_settings(peer_addresses, tmp_path / "journal.sqlite"), **settings})
