"""A restart of PostgreSQL while runs are active."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2, planner_pb2
from protos.hugginggpt.v1 import artifact_pb2, expert_pb2, gateway_pb2, run_pb2
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.orchestrator import END, ScriptedPeers, connected, echo, ref, run_ended, task, task_states
from tests.support.postgres import PostgresServer, running_server
from tests.support.required_programs import require

pytestmark = pytest.mark.slow

RUN = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
RUNS = 20
DOWN_SECONDS = 5.0


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    require("postgres")
    with running_server() as postgres_server:
        yield postgres_server


@pytest.mark.parametrize("lease_seconds", [10.0, 2.0], ids=["shorter than a lease", "longer than a lease"])
async def test_no_run_is_lost_and_no_task_starts_while_postgresql_is_down(
    peers: ScriptedPeers, settings: Settings, postgres_server: PostgresServer, lease_seconds: float
) -> None:
    full, may_end, next_started = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "hello":
            full.release()
            await may_end.wait()
        else:
            next_started.set()
        return await echo(request)

    peers.infer["model"] = infer

    async def planned(request: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        earlier = {prior.task.id for prior in request.prior}
        for event in (task(1), task(2, text=ref(1))):
            if event.task.id not in earlier:
                yield event
        yield END

    peers.plans.append(planned)
    settings = settings.model_copy(
        update={"journal": postgres_server.url, "lease_seconds": lease_seconds, "calls_per_run": 99}
    )
    async with asyncio.timeout(60), serve_orchestrator(settings) as running, connected(running) as stub:
        calls = [stub.CreateRun(RUN, timeout=60) for _ in range(RUNS)]
        run_ids = [(await anext(aiter(call))).run_id for call in calls]
        for _ in run_ids:
            await full.acquire()
        await asyncio.to_thread(postgres_server.stop)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await anext(aiter(stub.CreateRun(RUN, timeout=20)))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        may_end.set()  # now that it is known to be down
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(DOWN_SECONDS):
                await next_started.wait()
        await asyncio.to_thread(postgres_server.start)
        for run_id in run_ids:
            watch = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=run_id), timeout=30)
            events = [event async for event in watch]
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
            assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
        listed = await stub.ListRuns(gateway_pb2.ListRunsRequest(), timeout=5)
        assert {run.run_id for run in listed.runs} == set(run_ids)
