"""What goes wrong around the orchestrator, and what becomes of its runs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from protos.hugginggpt.internal.v1 import orchestrator_pb2, planner_pb2, selector_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    event_pb2,
    expert_pb2,
    gateway_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
    usage_pb2,
)
from protos.hugginggpt.v1.event_pb2 import NEXT_STEP_NEXT_CANDIDATE
from services.common.errors import ModelFailed, Overloaded, ServiceError, from_rpc
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.orchestrator import (
    END,
    OrchestratorUnderTest,
    ScriptedPeers,
    candidate,
    connected,
    event_kinds,
    note,
    ref,
    run_ended,
    task,
    task_states,
    text,
    wait_until_cancelled,
)

RUN = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))


@pytest.mark.parametrize(
    "bad",
    [task(1, text=text("again")), task(3, text=ref(9)), task(3, text=ref(3)), task(0)],
    ids=["an id that is taken", "a reference forward", "a reference to itself", "an id that does not grow"],
)
async def test_a_task_that_cannot_stand_breaks_the_stream_not_the_run(
    orchestrator: OrchestratorUnderTest, bad: planner_pb2.PlanEvent
) -> None:
    orchestrator.peers.plan(task(1), task(2), bad, END)
    orchestrator.peers.plan(task(4, text=ref(2)), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED", 4: "SUCCEEDED"}
    assert [planned.task_id for planned in events if planned.HasField("task_planned")] == [1, 2, 4]
    assert orchestrator.peers.planned[1].goal.HasField("continuation")
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_a_planner_that_only_sends_what_cannot_stand_fails_the_run_clearly(
    orchestrator: OrchestratorUnderTest,
) -> None:
    orchestrator.peers.plan(task(1, text=ref(7)), END)
    events = await orchestrator.run()
    assert len(orchestrator.peers.planned) == 3
    assert run_ended(events).state == run_pb2.RUN_STATE_FAILED
    assert run_ended(events).failure.code == code_pb2.DATA_LOSS
    assert "answer_chunk" in event_kinds(events)


async def test_what_the_planner_says_twice_is_told_once(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(note(plan_pb2.NOTE_KIND_UNMAPPED, "what?"))
    orchestrator.peers.plan(note(plan_pb2.NOTE_KIND_UNMAPPED, "what?"), task(1), END)
    events = await orchestrator.run()
    assert event_kinds(events).count("plan_note") == 1


async def test_a_planner_that_breaks_is_asked_to_continue(orchestrator: OrchestratorUnderTest) -> None:
    async def breaking(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        yield task(1)
        raise ZeroDivisionError

    orchestrator.peers.plans.append(breaking)
    orchestrator.peers.plan(task(2), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


@pytest.mark.parametrize(
    "argument",
    [
        task_pb2.Argument(),
        task_pb2.Argument(list=task_pb2.ArgumentList(items=[task_pb2.Argument(list=task_pb2.ArgumentList())])),
    ],
    ids=["empty", "a list in a list"],
)
async def test_an_argument_that_is_none_fails_its_task(
    orchestrator: OrchestratorUnderTest, argument: task_pb2.Argument
) -> None:
    orchestrator.peers.plan(task(1, text=argument), task(2), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "FAILED", 2: "SUCCEEDED"}
    assert (run_ended(events).failure.reason, run_ended(events).failure.port) == ("INVALID", "text")


async def test_a_task_for_which_nobody_is_chosen_fails(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.candidates.clear()
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "FAILED"}
    assert (run_ended(events).failure.code, run_ended(events).failure.reason) == (code_pb2.NOT_FOUND, "MODEL")


async def test_a_candidate_without_an_address_is_passed_over(orchestrator: OrchestratorUnderTest) -> None:
    away = candidate("asleep", "")
    del away.endpoints[:]
    orchestrator.peers.candidates.insert(0, away)
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    (failed,) = [event for event in events if event.HasField("attempt_failed")]
    assert (failed.attempt_failed.next, failed.attempt) == (NEXT_STEP_NEXT_CANDIDATE, 1)
    result = next(event.task_ended.result for event in events if event.HasField("task_ended"))
    assert (result.by.model_id, result.attempt) == ("model", 2)


async def test_the_end_of_a_task_that_is_skipped_is_the_last_heard_of_it(orchestrator: OrchestratorUnderTest) -> None:
    chosen = asyncio.Event()

    async def select() -> None:  # the choice for the second task never comes
        if chosen.is_set():
            await asyncio.Event().wait()
        chosen.set()

    async def planned(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        yield task(1, "time-travel")
        await chosen.wait()
        yield task(2, text=ref(1))
        yield END

    orchestrator.peers.select = select
    orchestrator.peers.plans.append(planned)
    async with asyncio.timeout(5):
        events = await orchestrator.run()
    assert task_states(events) == {1: "FAILED", 2: "SKIPPED"}
    assert {event.task_id: event.WhichOneof("event") for event in events if event.task_id} == {
        1: "task_ended",
        2: "task_ended",
    }


async def test_an_answer_that_breaks_off_is_kept_as_far_as_it_went(orchestrator: OrchestratorUnderTest) -> None:
    async def breaking() -> AsyncIterator[str]:
        yield "so "
        yield "it "
        raise ZeroDivisionError

    orchestrator.peers.answer = breaking
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    assert "".join(event.answer_chunk.text for event in events) == "so it "
    assert (run_ended(events).state, run_ended(events).failure.code) == (
        run_pb2.RUN_STATE_INCOMPLETE,
        code_pb2.INTERNAL,
    )


async def test_text_is_told_though_the_rest_takes_long(orchestrator: OrchestratorUnderTest) -> None:
    told = asyncio.Event()

    async def slowly() -> AsyncIterator[str]:
        yield "so "
        yield "it "
        await told.wait()
        yield "is"

    orchestrator.peers.answer = slowly
    orchestrator.peers.plan(task(1), END)
    answer = ""
    async with asyncio.timeout(5):
        async for event in orchestrator.stub.CreateRun(RUN, timeout=5):
            answer += event.answer_chunk.text
            if answer == "so it ":
                told.set()
    assert answer == "so it is"


async def test_a_deadline_that_is_over_at_once_ends_the_run(orchestrator: OrchestratorUnderTest) -> None:
    budget = usage_pb2.Budget()
    budget.wall_time.FromNanoseconds(1)
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run(budget=budget)
    assert (run_ended(events).state, run_ended(events).failure.reason) == (run_pb2.RUN_STATE_FAILED, "DEADLINE")


async def test_an_absurd_time_is_as_much_as_there_is(orchestrator: OrchestratorUnderTest, settings: Settings) -> None:
    budget = usage_pb2.Budget()
    budget.wall_time.seconds = 2**62
    orchestrator.peers.plan(task(1), END)
    first = (await orchestrator.run(budget=budget))[0]
    given = first.run_accepted.deadline.ToNanoseconds() - first.time.ToNanoseconds()
    assert given <= settings.run_seconds * 1e9


async def test_one_key_used_by_many_at_once_is_one_run(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    many = await asyncio.gather(*(orchestrator.run(idempotency_key="k") for _ in range(10)))
    assert all(events == many[0] for events in many)
    assert len(orchestrator.peers.planned) == 1


async def test_many_at_once_are_no_more_than_fit(peers: ScriptedPeers, settings: Settings) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    peers.infer["model"] = lambda _: wait_until_cancelled(inferring, cancelled)
    peers.plan(task(1), END)

    async def first(call: Any) -> event_pb2.RunEvent | ServiceError:
        try:
            return await anext(aiter(call))
        except grpc.aio.AioRpcError as error:
            return from_rpc(error)

    async with serve_orchestrator(settings.model_copy(update={"max_runs": 2})) as running, connected(running) as stub:
        calls = [stub.CreateRun(RUN, timeout=20) for _ in range(10)]
        answers = await asyncio.gather(*map(first, calls))
    assert sum(isinstance(answer, event_pb2.RunEvent) for answer in answers) == 2
    assert sum(isinstance(answer, Overloaded) for answer in answers) == 8


async def test_an_answer_is_continued_by_the_next_owner(peers: ScriptedPeers, settings: Settings) -> None:
    async def hanging_answer() -> AsyncIterator[str]:
        yield "so "
        await asyncio.Event().wait()

    async def rest() -> AsyncIterator[str]:
        yield "it is"

    peers.answer = hanging_answer
    peers.plan(task(1), END)
    async with serve_orchestrator(settings) as running, connected(running) as stub, asyncio.timeout(10):
        async for event in stub.CreateRun(RUN, timeout=20):
            if event.HasField("answer_chunk"):
                break
    peers.answer = rest
    async with serve_orchestrator(settings) as running, connected(running) as stub, asyncio.timeout(10):
        watch = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=event.run_id), timeout=20)
        events = [event async for event in watch]
    assert peers.answered[1].sent == "so "
    assert "".join(event.answer_chunk.text for event in events) == "so it is"
    assert event_kinds(events).count("task_ended") == 1
    assert len(peers.planned) == 1


async def test_every_candidate_is_first_asked_at_its_best_place(
    orchestrator: OrchestratorUnderTest, peer_addresses: dict[str, str]
) -> None:
    async def broken(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        raise ModelFailed("nan")

    orchestrator.peers.infer["broken"] = broken
    (good,) = orchestrator.peers.candidates
    good.endpoints.insert(0, selector_pb2.Endpoint(address="127.0.0.1:1"))
    good.endpoints[1].loaded = True
    orchestrator.peers.candidates.insert(0, candidate("broken", peer_addresses["expert"]))
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    tried = [event.task_started.by for event in events if event.HasField("task_started")]
    assert [by.model_id for by in tried] == ["broken", "model"]
    assert task_states(events) == {1: "SUCCEEDED"}
