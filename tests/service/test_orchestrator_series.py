"""The number of metric series is independent of the number of runs and callers."""

import asyncio
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1 import artifact_pb2, caller_pb2, expert_pb2, plan_pb2, run_pb2, task_pb2
from services.common.call_context import METADATA_KEY
from services.common.channel import connect
from services.common.errors import InvalidRequest
from tests.support.logs import logged
from tests.support.orchestrator import END, ScriptedPeers, echo, process_settings, task
from tests.support.processes import processes

pytestmark = pytest.mark.slow

KEYS, MANY, AT_ONCE = 500, 10_000, 32
SECONDS = 540
LABELS = {
    *("expert", "code", "next", "state", "reason", "kind", "task", "model", "shadow", "outcome", "le"),
    *("rpc_method", "rpc_response_status_code", "rpc_system_name", "error_type", "gen_ai_request_model"),
}
"""The labels that may occur; none is of a run, a caller or user data."""


async def fail_odd(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    """Refuses odd numbers, each for a different reason."""
    number = int(request.inputs["text"].text)
    if number % 2:
        raise InvalidRequest(f"{number} is odd", reason=f"ODD_{number}", port=f"port-{number}")
    return await echo(request)


def request_of(number: int, key: int) -> tuple[orchestrator_pb2.CreateRunRequest, Any]:
    argument = task_pb2.Argument(value=artifact_pb2.Value(text=str(number)))
    plan = plan_pb2.Plan(tasks=[task_pb2.Task(id=1, task="summarization", arguments={"text": argument})])
    spec = run_pb2.RunSpec(request=f"do {number}", plan=plan, metadata={"note": f"note {number}"})
    caller = caller_pb2.Caller(tenant=f"tenant-{key}", key_id=f"key-{key}", request_id=f"request-{number}")
    return orchestrator_pb2.CreateRunRequest(spec=spec), ((METADATA_KEY, caller.SerializeToString()),)


async def run_all(stub: Any, count: int, keys: int) -> None:
    permits = asyncio.Semaphore(AT_ONCE)

    async def run(number: int, key: int) -> None:
        request, metadata = request_of(number, key)
        async with permits:
            async for _ in stub.CreateRun(request, timeout=60, metadata=metadata):
                pass

    async with asyncio.TaskGroup() as group:
        for number, key in zip(range(count), cycle(range(keys)), strict=False):
            group.create_task(run(number, key))


async def series(port: int) -> tuple[set[str], set[str]]:
    """Each series as text, without those of the process itself; and the names of their labels."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    own = [each for each in samples if not each.name.startswith(("python_", "process_", "target_"))]
    return {f"{each.name} {sorted(each.labels.items())}" for each in own}, {
        name for each in own for name in each.labels
    }


@pytest.mark.timeout(SECONDS)
async def test_many_runs_of_many_keys_have_the_series_of_few(
    peers: ScriptedPeers, peer_addresses: dict[str, str], tmp_path: Path
) -> None:
    peers.plan(task(1), END)
    peers.infer["model"] = fail_odd
    settings = {**process_settings(peer_addresses, tmp_path / "journal.sqlite"), "METRICS_LISTEN": "127.0.0.1:0"}
    async with processes(SECONDS) as start:
        process = await start("-m", "services.orchestrator", **settings)
        port, served = [(await logged(process, event))["port"] for event in ("metrics", "serving")]
        assert process.stderr
        drained = asyncio.create_task(process.stderr.read())
        async with connect(f"127.0.0.1:{served}") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
            await run_all(stub, 10, 1)
            few, _ = await series(port)
            await run_all(stub, MANY, KEYS)
            many, labels = await series(port)
        process.kill()
        await drained
    assert len(few) > 20
    assert many == few
    assert labels <= LABELS
