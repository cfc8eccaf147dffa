"""Runs whose planner, selector, experts, responder or clients fail."""

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
    "invalid",
    [task(1, text=text("again")), task(3, text=ref(9)), task(3, text=ref(3)), task(0)],
    ids=["duplicate ID", "forward reference", "reference to itself", "ID that does not grow"],
)
async def test_invalid_task_interrupts_the_plan_stream_and_not_the_run(
    orchestrator: OrchestratorUnderTest, invalid: planner_pb2.PlanEvent
) -> None:
    orchestrator.peers.plan(task(1), task(2), invalid, END)
    orchestrator.peers.plan(task(4, text=ref(2)), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED", 4: "SUCCEEDED"}
    assert [planned.task_id for planned in events if planned.HasField("task_planned")] == [1, 2, 4]
    assert orchestrator.peers.planned[1].goal.HasField("continuation")
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_run_fails_when_the_planner_sends_only_invalid_tasks(
    orchestrator: OrchestratorUnderTest,
) -> None:
    orchestrator.peers.plan(task(1, text=ref(7)), END)
    events = await orchestrator.run()
    assert len(orchestrator.peers.planned) == 3
    assert run_ended(events).state == run_pb2.RUN_STATE_FAILED
    assert run_ended(events).failure.code == code_pb2.DATA_LOSS
    assert "answer_chunk" in event_kinds(events)


async def test_repeated_note_is_emitted_once(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(note(plan_pb2.NOTE_KIND_UNMAPPED, "what?"))
    orchestrator.peers.plan(note(plan_pb2.NOTE_KIND_UNMAPPED, "what?"), task(1), END)
    events = await orchestrator.run()
    assert event_kinds(events).count("plan_note") == 1


async def test_interrupted_plan_is_continued(orchestrator: OrchestratorUnderTest) -> None:
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
    ids=["empty", "list in a list"],
)
async def test_invalid_argument_fails_its_task(
    orchestrator: OrchestratorUnderTest, argument: task_pb2.Argument
) -> None:
    orchestrator.peers.plan(task(1, text=argument), task(2), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "FAILED", 2: "SUCCEEDED"}
    assert run_ended(events).failure.reason == "INVALID"
    assert run_ended(events).failure.port == "text"


async def test_task_without_candidates_fails(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.candidates.clear()
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "FAILED"}
    assert run_ended(events).failure.code == code_pb2.NOT_FOUND
    assert run_ended(events).failure.reason == "MODEL"


async def test_candidate_without_an_address_is_skipped(orchestrator: OrchestratorUnderTest) -> None:
    dormant = candidate("dormant", "")
    del dormant.endpoints[:]
    orchestrator.peers.candidates.insert(0, dormant)
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    (failed,) = [event for event in events if event.HasField("attempt_failed")]
    assert failed.attempt_failed.next == NEXT_STEP_NEXT_CANDIDATE
    assert failed.attempt == 1
    result = next(event.task_ended.result for event in events if event.HasField("task_ended"))
    assert result.by.model_id == "model"
    assert result.attempt == 2


async def test_skipped_task_emits_no_event_after_its_end(orchestrator: OrchestratorUnderTest) -> None:
    chosen = asyncio.Event()

    async def select() -> None:  # the selection for the second task never ends
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


async def test_interrupted_answer_is_stored_as_far_as_received(orchestrator: OrchestratorUnderTest) -> None:
    async def breaking() -> AsyncIterator[str]:
        yield "so "
        yield "it "
        raise ZeroDivisionError

    orchestrator.peers.answer = breaking
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    assert "".join(event.answer_chunk.text for event in events) == "so it "
    assert run_ended(events).state == run_pb2.RUN_STATE_INCOMPLETE
    assert run_ended(events).failure.code == code_pb2.INTERNAL


async def test_text_is_sent_while_the_rest_of_the_answer_is_pending(orchestrator: OrchestratorUnderTest) -> None:
    chunks_received = asyncio.Event()

    async def slowly() -> AsyncIterator[str]:
        yield "so "
        yield "it "
        await chunks_received.wait()
        yield "is"

    orchestrator.peers.answer = slowly
    orchestrator.peers.plan(task(1), END)
    answer = ""
    async with asyncio.timeout(5):
        async for event in orchestrator.stub.CreateRun(RUN, timeout=5):
            answer += event.answer_chunk.text
            if answer == "so it ":
                chunks_received.set()
    assert answer == "so it is"


async def test_deadline_that_passes_at_once_ends_the_run(orchestrator: OrchestratorUnderTest) -> None:
    budget = usage_pb2.Budget()
    budget.wall_time.FromNanoseconds(1)
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run(budget=budget)
    assert run_ended(events).state == run_pb2.RUN_STATE_FAILED
    assert run_ended(events).failure.reason == "DEADLINE"


async def test_wall_time_budget_is_limited_by_the_settings(
    orchestrator: OrchestratorUnderTest, settings: Settings
) -> None:
    budget = usage_pb2.Budget()
    budget.wall_time.seconds = 2**62
    orchestrator.peers.plan(task(1), END)
    first = (await orchestrator.run(budget=budget))[0]
    allowed_nanoseconds = first.run_accepted.deadline.ToNanoseconds() - first.time.ToNanoseconds()
    assert allowed_nanoseconds <= settings.run_seconds * 1e9


async def test_concurrent_requests_with_one_idempotency_key_start_one_run(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    many = await asyncio.gather(*(orchestrator.run(idempotency_key="k") for _ in range(10)))
    assert all(events == many[0] for events in many)
    assert len(orchestrator.peers.planned) == 1


async def test_concurrent_runs_are_limited(peers: ScriptedPeers, settings: Settings) -> None:
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


async def test_answer_is_continued_by_the_next_owner(peers: ScriptedPeers, settings: Settings) -> None:
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


async def test_each_candidate_is_first_called_at_its_best_address(
    orchestrator: OrchestratorUnderTest, peer_addresses: dict[str, str]
) -> None:
    async def fail(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        raise ModelFailed("nan")

    orchestrator.peers.infer["broken"] = fail
    (good,) = orchestrator.peers.candidates
    good.endpoints.insert(0, selector_pb2.Endpoint(address="127.0.0.1:1"))
    good.endpoints[1].loaded = True
    orchestrator.peers.candidates.insert(0, candidate("broken", peer_addresses["expert"]))
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    tried = [event.task_started.by for event in events if event.HasField("task_started")]
    assert [by.model_id for by in tried] == ["broken", "model"]
    assert task_states(events) == {1: "SUCCEEDED"}
