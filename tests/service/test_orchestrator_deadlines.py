"""Deadlines of runs: what counts against them, and which clock measures them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from protos.hugginggpt.internal.v1 import planner_pb2, planner_pb2_grpc, selector_pb2, selector_pb2_grpc
from protos.hugginggpt.internal.v1.planner_pb2 import PlanEvent, PlanRequest
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, PRIORITY_INTERACTIVE, Caller, Priority
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.model_pb2 import INFERENCE_MODE_LOCAL
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import call_context
from services.common.channel import connect
from services.common.errors import DeadlineExceeded, Overloaded
from services.common.server import serving
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.runs import selector_client
from services.orchestrator.runs.planner_client import PlannerClient
from services.orchestrator.runs.selector_client import CandidateCache, SelectorClient
from tests.conftest import Serve
from tests.fakes import FakeExpert, ScriptedSelector, card
from tests.support.expert_calls import SPEC, SimulatedRun, candidate, open_client
from tests.support.orchestrator import END, OrchestratorUnderTest, task, task_states

HOUR = 3600.0

pytestmark = pytest.mark.timeout(30)


class WallClock:
    """The wall clock of this process, which a test can set forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._offset = 0.0
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + self._offset)

    def jump(self, seconds: float) -> None:
        self._offset += seconds


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


# ---------------------------------------------------------------- clocks


async def test_attempts_keep_their_time_when_the_wall_clock_jumps(wall_clock: WallClock) -> None:
    calls = 0

    async def busy_once(request: InferRequest) -> dict[str, Value]:
        nonlocal calls
        calls += 1
        if calls == 1:
            wall_clock.jump(HOUR)
            raise Overloaded("busy", retry_after=timedelta(milliseconds=1))
        return {"text": request.inputs["text"]}

    expert = FakeExpert("fake", [card("model", SPEC.name)])
    expert.answer = busy_once
    async with open_client() as client, expert.serving() as address:
        outcome = await SimulatedRun(client, seconds=20).infer(candidate(address))
    assert outcome.result.outputs["text"].text == "hello"


async def test_run_completes_when_the_wall_clock_jumps_while_it_is_planned(
    orchestrator: OrchestratorUnderTest, wall_clock: WallClock
) -> None:
    async def script(_: PlanRequest) -> AsyncIterator[PlanEvent]:
        wall_clock.jump(HOUR)
        yield task(1)
        yield END

    orchestrator.peers.plans.append(script)
    events = await orchestrator.run()
    assert task_states(events) == {1: "SUCCEEDED"}


# ---------------------------------------------------------------- permits


class HangingSelector(ScriptedSelector):
    """Never chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.called = asyncio.Event()

    async def Select(self, request: selector_pb2.SelectRequest, context: Any) -> selector_pb2.SelectResponse:
        self.calls += 1
        self.called.set()
        await asyncio.Event().wait()
        return selector_pb2.SelectResponse(candidates=[selector_pb2.SelectedCandidate()])

    async def WatchCatalogue(self, request: selector_pb2.WatchCatalogueRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await context.write(selector_pb2.WatchCatalogueResponse(revision="any"))
        await asyncio.Event().wait()


@pytest.mark.parametrize("priority", [PRIORITY_INTERACTIVE, PRIORITY_BATCH])
async def test_wait_for_a_selector_permit_counts_against_the_deadline(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, priority: "Priority.ValueType"
) -> None:
    monkeypatch.setattr(selector_client, "AT_ONCE", 2)
    monkeypatch.setattr(selector_client, "BATCH_AT_ONCE", 1)
    selector = HangingSelector()
    register = partial(selector_pb2_grpc.add_SelectorServiceServicer_to_server, selector)
    channel = await serve(register, selector_pb2.DESCRIPTOR.services_by_name["SelectorService"])
    stub = selector_pb2_grpc.SelectorServiceStub(channel)
    first, second = list(standard_tasks())[:2]
    async with AsyncExitStack() as stack:
        catalogue = await stack.enter_async_context(CandidateCache(CatalogueWatcher(stub)))
        stack.enter_context(call_context.use_caller(Caller(tenant="tenant", priority=priority)))
        chosen = SelectorClient(stub, list, catalogue)
        holding = asyncio.create_task(chosen.select_cached(Task(task=first), INFERENCE_MODE_LOCAL, None))
        await selector.called.wait()
        monkeypatch.setattr(selector_client, "CACHED_SECONDS", 0.1)
        with pytest.raises(DeadlineExceeded) as late:
            await chosen.select_cached(Task(task=second), INFERENCE_MODE_LOCAL, None)
        holding.cancel()
        await asyncio.wait([holding])
    assert f"no model was selected for {second}: 1 calls to the selector were active" in late.value.message
    assert selector.calls == 1


# ---------------------------------------------------------------- the planner's calls


async def test_planner_call_is_cancelled_when_its_reader_stops() -> None:
    cancelled = asyncio.Event()

    class Planner(planner_pb2_grpc.PlannerServiceServicer):
        async def Plan(self, request: PlanRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
            try:
                await context.write(task(1))
                await context.write(END)
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    register = partial(planner_pb2_grpc.add_PlannerServiceServicer_to_server, Planner())
    service = planner_pb2.DESCRIPTOR.services_by_name["PlannerService"]
    async with serving(register, service) as running, connect(f"127.0.0.1:{running.port}") as channel:
        plan = await PlannerClient(planner_pb2_grpc.PlannerServiceStub(channel)).check(PlanRequest())
        assert [each.id for each in plan.tasks] == [1]
        async with asyncio.timeout(10):
            await cancelled.wait()
