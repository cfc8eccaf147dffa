"""Many calls of experts at once, and experts that hang, are down, or are full."""

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
from tests.support.expert_calls import SPEC, Asked, Asker, asking, candidate, open_circuit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(30)]


class Held(FakeExpert):
    """An expert whose calls last until they are let go."""

    def __init__(self, name: str = "fake") -> None:
        super().__init__(name, [card("model", SPEC.name)], answer=self.hold)
        self.go, self.arrived = asyncio.Event(), asyncio.Condition()
        self.here = 0
        self.left = asyncio.Event()

    async def hold(self, request: InferRequest) -> dict[str, Value]:
        self.here += 1
        async with self.arrived:
            self.arrived.notify_all()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        finally:
            self.here -= 1
        return {"text": request.inputs["text"]}

    async def has(self, calls: int) -> None:
        """Waits until so many are here."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: self.here >= calls)


def quick(name: str = "fake") -> FakeExpert:
    return FakeExpert(name, [card("model", SPEC.name)])


# ---------------------------------------------------------------- cancelling


@pytest.mark.parametrize("traced", [False, True], ids=["untraced", "traced"])
async def test_cancel_reaches_the_running_expert(*, traced: bool) -> None:
    expert = Held()
    with record_traces() if traced else nullcontext():
        async with asking() as attempts, expert.serving() as address, quick().serving() as other:
            for _ in range(3):
                expert.left.clear()
                task = asyncio.create_task(Asker(attempts).infer(candidate(address)))
                await expert.has(1)
                task.cancel()
                await expert.left.wait()
                await asyncio.wait([task])
                assert task.cancelled()
            both = candidate(Endpoint(address=address, loaded=True), Endpoint(address=other, loaded=True, queue=1))
            assert attempts.health.choose_address(both, set()) == address
            assert not attempts.health.avoid()


async def test_a_traced_call_tells_how_its_expert_is() -> None:
    class Telling(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            context.set_trailing_metadata((("expert-queue", "0"), ("expert-loaded", "model")))
            return await super().Infer(request, context)

    expert = Telling("fake", [card("model", SPEC.name)])
    with record_traces():
        async with asking() as attempts, expert.serving() as address, quick().serving() as other:
            both = candidate(address, other)
            first = await Asker(attempts).infer(candidate(address))
            assert first.result.outputs["text"].text == "hello"
            await Asker(attempts).infer(both)
            assert len(expert.asked) == 2


# ---------------------------------------------------------------- turns


async def test_an_expert_that_hangs_costs_only_its_callers() -> None:
    hung, fine, free = Held("hung"), quick("fine"), Held("free")
    limits: dict[str, Any] = {"calls_at_once": 20, "calls_per_expert": 10}
    async with asking(**limits) as attempts, hung.serving() as one, fine.serving() as two:
        stuck = [
            asyncio.create_task(Asker(attempts, f"stuck-{number}").infer(candidate(one, expert="hung")))
            for number in range(100)
        ]
        await hung.has(10)
        for number in range(50):
            asked = await Asker(attempts, f"run-{number}").infer(candidate(two, expert="fine"))
            assert asked.result.outputs["text"].text == "hello"
        assert (hung.here, len(hung.asked)) == (10, 10)
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        async with free.serving() as three:
            freed = [(candidate(one, expert="hung"), f"run-{number}") for number in range(10)]
            freed += [(candidate(three, expert="free"), f"run-{number}") for number in range(10)]
            calls = [asyncio.create_task(Asker(attempts, run).infer(each)) for each, run in freed]
            await hung.has(10)
            await free.has(10)
            hung.go.set()
            free.go.set()
            await asyncio.gather(*calls)


async def test_a_large_run_leaves_places_to_others() -> None:
    expert = Held()
    async with asking(calls_at_once=8, calls_per_run=6) as attempts, expert.serving() as address:
        large = Asker(attempts, "large")
        many = [asyncio.create_task(large.infer(candidate(address))) for _ in range(100)]
        await expert.has(6)
        other = asyncio.create_task(Asker(attempts, "other").infer(candidate(address)))
        await expert.has(7)
        expert.go.set()
        done = await asyncio.gather(other, *many)
    assert {each.result.outputs["text"].text for each in done} == {"hello"}
    begun = [[event for event in each.told if event != "task_waiting"] for each in done]  # told after a long wait only
    assert begun == [["task_started"]] * len(done)


async def test_people_are_served_before_the_background() -> None:
    expert, order = Held(), list[str]()

    async def ask(run: str, **who: Any) -> None:
        await Asker(attempts, run, **who).infer(candidate(address))
        order.append(run)

    async with asking(calls_per_expert=1) as attempts, expert.serving() as address, asyncio.TaskGroup() as group:
        group.create_task(ask("first"))
        await expert.has(1)
        for number in range(3):
            group.create_task(ask(f"batch-{number}", priority=PRIORITY_BATCH))
        await asyncio.sleep(0)
        group.create_task(ask("person"))
        await asyncio.sleep(0)
        expert.go.set()
    assert order[:2] == ["first", "person"]


async def test_a_wait_for_a_turn_is_told_once_and_only_if_it_is_noticeable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.candidate_waiter.REPORT_WAIT_AFTER_SECONDS", 0.01)
    told = asyncio.Event()
    expert, asked = Held(), Asked()

    class Events(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            told.set()

    asked.events = Events()
    async with asking(calls_per_expert=1) as attempts, expert.serving() as address:
        first = asyncio.create_task(Asker(attempts).infer(candidate(address)))
        await expert.has(1)
        second = asyncio.create_task(Asker(attempts).infer(candidate(address), asked=asked))
        await told.wait()
        expert.go.set()
        await asyncio.wait([first, second])
    assert asked.told == ["task_waiting", "task_started"]
    waiting = asked.events[0].task_waiting
    assert waiting.expert == "fake"
    assert "limit of concurrent calls" in waiting.reason


async def test_a_turn_that_does_not_come_in_time_leaves_time_for_the_next_candidate() -> None:
    hung, fine = Held("hung"), quick("fine")
    async with asking(calls_per_expert=1) as attempts, hung.serving() as one, fine.serving() as two:
        stuck = asyncio.create_task(Asker(attempts).infer(candidate(one, expert="hung")))
        await hung.has(1)
        chosen = [candidate(one, expert="hung"), candidate(two, expert="fine")]
        asked = await Asker(attempts, seconds=0.6).infer(*chosen)
        assert (asked.result.by.expert, asked.failures) == ("fine", [("DEADLINE_EXCEEDED", "next_candidate")])
        stuck.cancel()


async def test_calls_wanted_are_counted_by_expert_until_they_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = Counter[str]()

    class Gauge:
        def add(self, amount: int, labels: dict[str, str]) -> None:
            depth[labels["expert"]] += amount

    monkeypatch.setattr("services.orchestrator.metrics.expert_queue_depth", Gauge())
    expert = Held()
    async with asking(calls_per_expert=2) as attempts, expert.serving() as address:
        calls = [asyncio.create_task(Asker(attempts).infer(candidate(address))) for _ in range(5)]
        await expert.has(2)
        assert depth == {"fake": 5}
        calls[4].cancel()
        expert.go.set()
        await asyncio.wait(calls)
    assert depth == {"fake": 0}


# ---------------------------------------------------------------- outages


class Down(FakeExpert):
    """An expert that cannot do anything, and says so in one way or the other."""

    def __init__(self, failure: ServiceError | None) -> None:
        super().__init__("fake", [card("model", SPEC.name)])
        self._failure = failure

    async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
        self.asked.append(request)
        if self._failure:
            raise self._failure
        return await context.abort(grpc.StatusCode.CANCELLED, "too many")  # type: ignore[no-any-return]  # it raises


@pytest.mark.parametrize("runs", [1, 200], ids=["one run", "many runs"])
@pytest.mark.parametrize("failure", [Unavailable("down"), None], ids=["unavailable", "drops calls"])
async def test_an_outage_is_not_amplified(
    monkeypatch: pytest.MonkeyPatch, failure: ServiceError | None, runs: int
) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.02)
    monkeypatch.setattr("services.orchestrator.experts.health.MAX_PROBE_WAIT_SECONDS", 0.1)
    expert, tasks = Down(failure), 200
    async with asking(calls_per_expert=16) as attempts, expert.serving() as address:
        askers = [Asker(attempts, f"run-{number}") for number in range(runs)]
        calls = (askers[number % runs].infer(candidate(address)) for number in range(tasks))
        asked = await asyncio.gather(*calls)
    assert {each.result.failure.code for each in asked} <= {code_pb2.UNAVAILABLE, code_pb2.CANCELLED}
    assert len(expert.asked) <= tasks * (1 + 1.5 * RETRIES_PER_CALL) + INITIAL_RETRIES


async def test_tasks_in_flight_outlast_the_restart_of_their_only_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.05)
    tasks, before, after = 150, Held(), quick()
    async with asking(calls_per_expert=100) as attempts:
        async with before.serving() as address:
            asker = Asker(attempts)
            calls = [asyncio.create_task(asker.infer(candidate(address))) for _ in range(tasks)]
            await before.has(100)
        while not attempts.health.avoid():  # until it is known that the expert is away
            await attempts.health.wait_for_change(1)
        async with after.serving(listen=address):
            asked = await asyncio.gather(*calls)
    assert {each.result.outputs["text"].text for each in asked} == {"hello"}
    assert len(after.asked) == tasks


async def test_a_long_call_shows_that_an_expert_is_back_before_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.infer_call.REACHED_SECONDS", 0.05)
    expert = Held()
    async with asking() as attempts, expert.serving() as address:
        open_circuit(attempts, candidate(address), Unavailable("down"))
        calls = [asyncio.create_task(Asker(attempts).infer(candidate(address))) for _ in range(20)]
        async with asyncio.timeout(20):
            await expert.has(20)
        expert.go.set()
        assert {len(each.failures) for each in await asyncio.gather(*calls)} == {0}


async def test_a_burst_for_a_cold_model_goes_to_one_place() -> None:
    one, two = Held(), Held()
    async with asking() as attempts, one.serving() as a, two.serving() as b:
        both = candidate(Endpoint(address=a, free_bytes=9), Endpoint(address=b, free_bytes=9))
        asker = Asker(attempts)
        calls = [asyncio.create_task(asker.infer(both)) for _ in range(30)]
        first = one if await _first(one, two) else two
        await first.has(30)
        for expert in (one, two):
            expert.go.set()
        await asyncio.gather(*calls)
    assert sorted((len(one.asked), len(two.asked))) == [0, 30]


async def _first(one: Held, two: Held) -> bool:
    """Whether the first of two is called first."""
    calls = [asyncio.create_task(each.has(1)) for each in (one, two)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    for call in calls:
        call.cancel()
    return one.here > 0
