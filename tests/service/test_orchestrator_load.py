"""Many concurrent expert calls, with experts that hang, fail or are overloaded."""

import asyncio
from collections import Counter
from contextlib import nullcontext
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from protos.hugginggpt.internal.v1.selector_pb2 import Endpoint
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from services.common.errors import ServiceError, Unavailable
from services.orchestrator.experts.attempts import INITIAL_RETRIES, RETRIES_PER_CALL
from tests.fakes import FakeExpert, card
from tests.fakes.tracing import record_traces
from tests.support.expert_calls import SPEC, SimulatedRun, TaskOutcome, candidate, open_circuit, open_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(30)]


class HeldExpert(FakeExpert):
    """An expert whose calls last until they may finish."""

    def __init__(self, name: str = "fake") -> None:
        super().__init__(name, [card("model", SPEC.name)], answer=self.hold)
        self.may_finish, self.changed = asyncio.Event(), asyncio.Condition()
        self.active = 0
        self.cancelled = asyncio.Event()

    async def hold(self, request: InferRequest) -> dict[str, Value]:
        self.active += 1
        async with self.changed:
            self.changed.notify_all()
        try:
            await self.may_finish.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.active -= 1
        return {"text": request.inputs["text"]}

    async def wait_for_calls(self, calls: int) -> None:
        """Waits until at least so many calls are active."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.active >= calls)


def quick_expert(name: str = "fake") -> FakeExpert:
    return FakeExpert(name, [card("model", SPEC.name)])


# ---------------------------------------------------------------- cancelling


@pytest.mark.parametrize("traced", [False, True], ids=["untraced", "traced"])
async def test_cancel_reaches_the_running_expert(*, traced: bool) -> None:
    expert = HeldExpert()
    with record_traces() if traced else nullcontext():
        async with open_client() as client, expert.serving() as address, quick_expert().serving() as other:
            for _ in range(3):
                expert.cancelled.clear()
                task = asyncio.create_task(SimulatedRun(client).infer(candidate(address)))
                await expert.wait_for_calls(1)
                task.cancel()
                await expert.cancelled.wait()
                await asyncio.wait([task])
                assert task.cancelled()
            both = candidate(Endpoint(address=address, loaded=True), Endpoint(address=other, loaded=True, queue=1))
            assert client.health.choose_address(both, set()) == address
            assert not client.health.avoid()


async def test_traced_call_updates_the_load_of_its_address() -> None:
    class ReportingExpert(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            context.set_trailing_metadata((("expert-queue", "0"), ("expert-loaded", "model")))
            return await super().Infer(request, context)

    expert = ReportingExpert("fake", [card("model", SPEC.name)])
    with record_traces():
        async with open_client() as client, expert.serving() as address, quick_expert().serving() as other:
            both = candidate(address, other)
            first = await SimulatedRun(client).infer(candidate(address))
            assert first.result.outputs["text"].text == "hello"
            await SimulatedRun(client).infer(both)
            assert len(expert.requests) == 2


# ---------------------------------------------------------------- permits


async def test_hanging_expert_does_not_block_calls_of_others() -> None:
    hanging, fine, free = HeldExpert("hung"), quick_expert("fine"), HeldExpert("free")
    limits: dict[str, Any] = {"calls_at_once": 20, "calls_per_expert": 10}
    async with open_client(**limits) as client, hanging.serving() as one, fine.serving() as two:
        stuck = [
            asyncio.create_task(SimulatedRun(client, f"stuck-{number}").infer(candidate(one, expert="hung")))
            for number in range(100)
        ]
        await hanging.wait_for_calls(10)
        for number in range(50):
            outcome = await SimulatedRun(client, f"run-{number}").infer(candidate(two, expert="fine"))
            assert outcome.result.outputs["text"].text == "hello"
        assert hanging.active == 10
        assert len(hanging.requests) == 10
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        async with free.serving() as three:
            freed = [(candidate(one, expert="hung"), f"run-{number}") for number in range(10)]
            freed += [(candidate(three, expert="free"), f"run-{number}") for number in range(10)]
            calls = [asyncio.create_task(SimulatedRun(client, run).infer(each)) for each, run in freed]
            await hanging.wait_for_calls(10)
            await free.wait_for_calls(10)
            hanging.may_finish.set()
            free.may_finish.set()
            await asyncio.gather(*calls)


async def test_large_run_leaves_permits_to_others() -> None:
    expert = HeldExpert()
    async with open_client(calls_at_once=8, calls_per_run=6) as client, expert.serving() as address:
        large = SimulatedRun(client, "large")
        many = [asyncio.create_task(large.infer(candidate(address))) for _ in range(100)]
        await expert.wait_for_calls(6)
        other = asyncio.create_task(SimulatedRun(client, "other").infer(candidate(address)))
        await expert.wait_for_calls(7)
        expert.may_finish.set()
        done = await asyncio.gather(other, *many)
    assert {each.result.outputs["text"].text for each in done} == {"hello"}
    for each in done:  # some have waited long enough for a report
        assert [kind for kind in each.event_kinds if kind != "task_waiting"] == ["task_started"]


async def test_interactive_calls_are_served_before_batch_calls() -> None:
    expert, ended = HeldExpert(), list[str]()

    async def infer(run: str, **fields: Any) -> None:
        await SimulatedRun(client, run, **fields).infer(candidate(address))
        ended.append(run)

    async with open_client(calls_per_expert=1) as client, expert.serving() as address, asyncio.TaskGroup() as group:
        group.create_task(infer("first"))
        await expert.wait_for_calls(1)
        for number in range(3):
            group.create_task(infer(f"batch-{number}", priority=PRIORITY_BATCH))
        await asyncio.sleep(0)
        group.create_task(infer("interactive"))
        await asyncio.sleep(0)
        expert.may_finish.set()
    assert ended[:2] == ["first", "interactive"]


async def test_long_wait_for_a_permit_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.client.REPORT_WAIT_AFTER_SECONDS", 0.01)
    received = asyncio.Event()
    expert, outcome = HeldExpert(), TaskOutcome()

    class Events(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            received.set()

    outcome.events = Events()
    async with open_client(calls_per_expert=1) as client, expert.serving() as address:
        first = asyncio.create_task(SimulatedRun(client).infer(candidate(address)))
        await expert.wait_for_calls(1)
        second = asyncio.create_task(SimulatedRun(client).infer(candidate(address), outcome=outcome))
        await received.wait()
        expert.may_finish.set()
        await asyncio.wait([first, second])
    assert outcome.event_kinds == ["task_waiting", "task_started"]
    waiting = outcome.events[0].task_waiting
    assert waiting.expert == "fake"
    assert "limit of concurrent calls" in waiting.reason


async def test_wait_for_a_permit_leaves_time_for_the_next_candidate() -> None:
    hanging, fine = HeldExpert("hung"), quick_expert("fine")
    async with open_client(calls_per_expert=1) as client, hanging.serving() as one, fine.serving() as two:
        stuck = asyncio.create_task(SimulatedRun(client).infer(candidate(one, expert="hung")))
        await hanging.wait_for_calls(1)
        chosen = [candidate(one, expert="hung"), candidate(two, expert="fine")]
        outcome = await SimulatedRun(client, seconds=3.0).infer(*chosen)
        assert outcome.result.by.expert == "fine"
        assert outcome.failed_attempts == [("DEADLINE_EXCEEDED", "next_candidate")]
        stuck.cancel()


async def test_waiting_and_running_calls_are_counted_by_expert_and_model(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = Counter[tuple[str, str]]()

    class Gauge:
        def add(self, amount: int, labels: dict[str, str]) -> None:
            depth[labels["expert"], labels["gen_ai.request.model"]] += amount

    monkeypatch.setattr("services.orchestrator.metrics.expert_queue_depth", Gauge())
    expert = HeldExpert()
    async with open_client(calls_per_expert=2) as client, expert.serving() as address:
        calls = [asyncio.create_task(SimulatedRun(client).infer(candidate(address))) for _ in range(5)]
        await expert.wait_for_calls(2)
        assert depth == {("fake", "model"): 5}
        calls[4].cancel()
        expert.may_finish.set()
        await asyncio.wait(calls)
    assert set(depth.values()) == {0}


# ---------------------------------------------------------------- outages


class FailingExpert(FakeExpert):
    """An expert whose calls all fail, with an error or as CANCELLED by the server."""

    def __init__(self, failure: ServiceError | None) -> None:
        super().__init__("fake", [card("model", SPEC.name)])
        self._failure = failure

    async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
        self.requests.append(request)
        if self._failure:
            raise self._failure
        return await context.abort(grpc.StatusCode.CANCELLED, "too many")  # type: ignore[no-any-return]  # it raises


@pytest.mark.parametrize("runs", [1, 200], ids=["one run", "many runs"])
@pytest.mark.parametrize("failure", [Unavailable("down"), None], ids=["unavailable", "drops calls"])
async def test_retries_do_not_amplify_an_outage(
    monkeypatch: pytest.MonkeyPatch, failure: ServiceError | None, runs: int
) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.02)
    monkeypatch.setattr("services.orchestrator.experts.health.MAX_PROBE_WAIT_SECONDS", 0.1)
    expert, tasks = FailingExpert(failure), 200
    async with open_client(calls_per_expert=16) as client, expert.serving() as address:
        runs_of_tasks = [SimulatedRun(client, f"run-{number}") for number in range(runs)]
        calls = (runs_of_tasks[number % runs].infer(candidate(address)) for number in range(tasks))
        outcomes = await asyncio.gather(*calls)
    assert {each.result.failure.code for each in outcomes} <= {code_pb2.UNAVAILABLE, code_pb2.CANCELLED}
    assert len(expert.requests) <= tasks * (1 + 1.5 * RETRIES_PER_CALL) + INITIAL_RETRIES


async def test_active_tasks_outlast_the_restart_of_their_only_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.05)
    tasks, before, after = 150, HeldExpert(), quick_expert()
    async with open_client(calls_per_expert=100) as client:
        async with before.serving() as address:
            run = SimulatedRun(client)
            calls = [asyncio.create_task(run.infer(candidate(address))) for _ in range(tasks)]
            await before.wait_for_calls(100)
        while not client.health.avoid():  # until the circuit of the address is open
            await client.health.wait_for_change(1)
        async with after.serving(listen=address):
            outcomes = await asyncio.gather(*calls)
    assert {each.result.outputs["text"].text for each in outcomes} == {"hello"}
    assert len(after.requests) == tasks


async def test_long_call_closes_the_circuit_of_its_address_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.infer_call.REACHED_SECONDS", 0.0)  # before the channel connects
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.PROBE_SECONDS", 60.0)  # no second probe
    monkeypatch.setattr("services.orchestrator.experts.health.MAX_PROBE_WAIT_SECONDS", 90.0)  # for the other calls
    expert = HeldExpert()
    async with open_client(attempt_seconds=60.0) as client, expert.serving() as address:
        open_circuit(client, candidate(address), Unavailable("down"))
        calls = [asyncio.create_task(SimulatedRun(client).infer(candidate(address))) for _ in range(20)]
        async with asyncio.timeout(20):
            await expert.wait_for_calls(20)
        expert.may_finish.set()
        assert {len(each.failed_attempts) for each in await asyncio.gather(*calls)} == {0}


async def test_burst_for_a_cold_model_goes_to_one_address() -> None:
    one, two = HeldExpert(), HeldExpert()
    async with open_client() as client, one.serving() as a, two.serving() as b:
        both = candidate(Endpoint(address=a, free_bytes=9), Endpoint(address=b, free_bytes=9))
        run = SimulatedRun(client)
        calls = [asyncio.create_task(run.infer(both)) for _ in range(30)]
        first = one if await _first(one, two) else two
        await first.wait_for_calls(30)
        for expert in (one, two):
            expert.may_finish.set()
        await asyncio.gather(*calls)
    assert sorted((len(one.requests), len(two.requests))) == [0, 30]


async def _first(one: HeldExpert, two: HeldExpert) -> bool:
    """Whether the first of two experts is called before the second."""
    calls = [asyncio.create_task(each.wait_for_calls(1)) for each in (one, two)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    for call in calls:
        call.cancel()
    return one.active > 0
