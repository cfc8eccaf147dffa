"""Log events about a run contain its run and trace id, in every process."""

import asyncio
import json
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1 import artifact_pb2, expert_pb2, gateway_pb2, run_pb2
from services.common import call_context
from services.common.channel import connect
from services.common.errors import CorruptData
from tests.fakes.collector import collecting
from tests.fakes.tracing import record_traces
from tests.support.logs import logged
from tests.support.orchestrator import END, ScriptedPeers, echo, process_settings, ref, task
from tests.support.processes import processes

ABOVE = trace.SpanContext(0xABCD, 0xEF, is_remote=True, trace_flags=trace.TraceFlags(1))
HEARTBEAT = "services.orchestrator.leases"
"""Logger whose events may concern the process rather than a run."""

TRACE = f"{0xABCD:032x}"


async def lines(process: Process) -> list[dict[str, Any]]:
    """The remaining log events of a process."""
    assert process.stderr
    return [json.loads(line) for line in (await process.stderr.read()).splitlines() if line.startswith(b"{")]


async def planned(call: Any) -> str:
    """The id of a new run, once it is planned."""
    async for event in call:
        if event.HasField("plan_completed"):
            return str(event.run_id)
    pytest.fail("the run ended without a plan")


@pytest.fixture
def settings_variables(peer_addresses: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {**process_settings(peer_addresses, tmp_path / "journal.sqlite"), "ORCHESTRATOR_LEASE_SECONDS": "3"}


async def test_events_of_a_run_have_both_ids_also_after_a_takeover(
    peers: ScriptedPeers, settings_variables: dict[str, str]
) -> None:
    started, may_continue = asyncio.Event(), asyncio.Event()
    calls = 0

    async def slow_then_well_then_bad(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal calls
        calls += 1
        if calls == 1:
            started.set()
            await may_continue.wait()
        if calls > 2:
            raise CorruptData("it broke")
        return await echo(request)

    peers.infer["model"] = slow_then_well_then_bad
    peers.plan(task(1), *(task(number, text=ref(1)) for number in range(2, 6)), END)
    async with asyncio.timeout(60), collecting() as collected, processes(60) as start:
        environment = {**settings_variables, **collected.settings}
        first = await start("-m", "services.orchestrator", **environment)
        with record_traces(), trace.use_span(trace.NonRecordingSpan(ABOVE)):
            async with connect(f"127.0.0.1:{(await logged(first, 'serving'))['port']}") as channel:
                stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
                request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
                call = stub.CreateRun(request, timeout=60, metadata=call_context.metadata())
                run_id = await planned(call)
                await started.wait()
                first.kill()
        events = await lines(first)
        may_continue.set()
        second = await start("-m", "services.orchestrator", **environment)
        async with connect(f"127.0.0.1:{(await logged(second, 'serving'))['port']}") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
            watch = gateway_pb2.WatchRunRequest(run_id=run_id)
            async for _ in stub.WatchRun(watch, timeout=60, metadata=call_context.metadata()):
                pass
        second.terminate()
        events += await lines(second)
    of_run = [line for line in events if line.get("run_id") == run_id]
    assert {"circuit opened", "run taken over", "run ended"} <= {line["event"] for line in of_run}
    assert {line["trace_id"] for line in of_run} == {TRACE}
    ours = [
        line for line in events if line["logger"].startswith("services.orchestrator") and line["logger"] != HEARTBEAT
    ]
    assert [line["event"] for line in ours if "run_id" not in line] == []
