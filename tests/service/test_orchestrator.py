"""Runs of an orchestrator with a scripted planner, selector, responder and expert."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc import code_pb2

from protos.hugginggpt.internal.v1 import orchestrator_pb2, planner_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    event_pb2,
    expert_pb2,
    failure_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
    usage_pb2,
)
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_LLM
from services.common import call_context
from services.common.errors import InvalidRequest, ModelFailed, Unavailable
from services.orchestrator.runs.selector_client import AT_ONCE, BATCH_AT_ONCE
from tests.support.orchestrator import (
    END,
    OrchestratorUnderTest,
    candidate,
    echo,
    event_kinds,
    note,
    ref,
    run_ended,
    task,
    task_states,
    text,
)


async def test_run_emits_tasks_results_and_an_answer(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), task(2, text=ref(1)), END)
    events = await orchestrator.run()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert event_kinds(events)[0] == "run_accepted"
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    results = {event.task_id: event.task_ended.result for event in events if event.HasField("task_ended")}
    assert results[2].outputs["text"].text == "hello!!"
    assert results[2].by.model_id == "model"
    assert results[2].by.revision == "1"
    assert results[2].attempt == 1
    assert len(results[2].input_digest) == 64
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
    assert "".join(event.answer_chunk.text for event in events) == "so it is"


async def test_task_starts_while_the_planner_still_plans(orchestrator: OrchestratorUnderTest) -> None:
    inferred = asyncio.Event()

    async def slowly(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        yield task(1)
        await inferred.wait()
        yield END

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        inferred.set()
        return await echo(request)

    orchestrator.peers.plans.append(slowly)
    orchestrator.peers.infer["model"] = infer
    async with asyncio.timeout(5):
        events = await orchestrator.run()
    assert event_kinds(events).index("task_started") < event_kinds(events).index("plan_completed")


async def test_independent_tasks_run_concurrently(orchestrator: OrchestratorUnderTest) -> None:
    together = asyncio.Barrier(3)

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await together.wait()
        return await echo(request)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1), task(2), task(3), END)
    async with asyncio.timeout(5):
        assert run_ended(await orchestrator.run()).state == run_pb2.RUN_STATE_COMPLETED


async def test_concurrent_selections_of_a_large_plan_are_limited(orchestrator: OrchestratorUnderTest) -> None:
    full, planned, active, most = asyncio.Event(), asyncio.Event(), 0, 0
    limit = AT_ONCE - BATCH_AT_ONCE

    async def select() -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        if active >= limit:
            full.set()
        await planned.wait()
        active -= 1

    orchestrator.peers.select = select
    orchestrator.peers.plan(*(task(number) for number in range(1, 401)), END)
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="all of it"))
    async with asyncio.timeout(20):
        async for event in orchestrator.stub.CreateRun(request, timeout=20):
            if event.HasField("plan_completed"):
                await full.wait()
                planned.set()
    assert event.run_ended.state == run_pb2.RUN_STATE_COMPLETED
    assert most == limit


async def test_dependents_of_a_failed_task_are_skipped_and_the_run_is_answered(
    orchestrator: OrchestratorUnderTest,
) -> None:
    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "bad":
            raise InvalidRequest("this text is bad", remedy="send a good one", port="text")
        return await echo(request)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1, text=text("bad")), task(2, text=ref(1)), task(3), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "FAILED", 2: "SKIPPED", 3: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_INCOMPLETE
    assert run_ended(events).failure == failure_pb2.Failure(
        reason="INVALID",
        code=code_pb2.INVALID_ARGUMENT,
        message="this text is bad",
        remedy="send a good one",
        port="text",
    )
    assert "answer_chunk" in event_kinds(events)


async def test_run_without_usable_result_fails(orchestrator: OrchestratorUnderTest) -> None:
    async def infer(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        raise InvalidRequest("no")

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1), END)
    assert run_ended(await orchestrator.run()).state == run_pb2.RUN_STATE_FAILED


async def test_next_candidate_is_called_after_a_model_failed(
    orchestrator: OrchestratorUnderTest, peer_addresses: dict[str, str]
) -> None:
    async def broken(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        raise ModelFailed("nan")

    orchestrator.peers.infer = {"broken": broken, "model": echo}
    orchestrator.peers.candidates.insert(0, candidate("broken", peer_addresses["expert"]))
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    failed = next(event.attempt_failed for event in events if event.HasField("attempt_failed"))
    assert failed.by.model_id == "broken"
    assert failed.failure.reason == "MODEL_FAILED"
    assert failed.next == event_pb2.NEXT_STEP_NEXT_CANDIDATE
    result = next(event.task_ended.result for event in events if event.HasField("task_ended"))
    assert result.by.model_id == "model"
    assert result.attempt == 2
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_unavailable_expert_is_called_again(orchestrator: OrchestratorUnderTest) -> None:
    calls = 0

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise Unavailable("starting")
        return await echo(request)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    assert [event.attempt_failed.next for event in events if event.HasField("attempt_failed")] == [
        event_pb2.NEXT_STEP_RETRY,
        event_pb2.NEXT_STEP_RETRY,
    ]
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


@pytest.mark.parametrize(
    "outputs",
    [{}, {"txt": artifact_pb2.Value(text="x")}, {"text": artifact_pb2.Value(json="{}")}],
    ids=["missing", "unknown", "wrong kind"],
)
async def test_reply_that_violates_the_ports_is_rejected(
    orchestrator: OrchestratorUnderTest, outputs: dict[str, artifact_pb2.Value]
) -> None:
    async def infer(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        return outputs

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1), END)
    assert run_ended(await orchestrator.run()).failure.code == code_pb2.DATA_LOSS


async def test_reference_to_a_missing_output_fails_its_task(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), task(2, text=ref(1, "sound")), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "SUCCEEDED", 2: "FAILED"}
    assert "has no output sound" in run_ended(events).failure.message


async def test_task_without_offer_fails_with_a_remedy(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1, "time-travel"), END)
    failure = run_ended(await orchestrator.run()).failure
    assert failure.code == code_pb2.NOT_FOUND
    assert failure.reason == "TASK"
    assert failure.remedy == "add an expert"


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ([note(plan_pb2.NOTE_KIND_CHAT, "hi")], run_pb2.RUN_STATE_COMPLETED, ""),
        ([note(plan_pb2.NOTE_KIND_UNMAPPED, "what?")], run_pb2.RUN_STATE_FAILED, "UNPLANNABLE"),
        ([note(plan_pb2.NOTE_KIND_CLARIFY, "which?")], run_pb2.RUN_STATE_FAILED, "CLARIFY"),
        ([task(1), note(plan_pb2.NOTE_KIND_UNMAPPED, "what?")], run_pb2.RUN_STATE_INCOMPLETE, "UNPLANNABLE"),
        ([], run_pb2.RUN_STATE_FAILED, "UNPLANNABLE"),
    ],
)
async def test_final_state_follows_from_tasks_and_notes(
    orchestrator: OrchestratorUnderTest,
    events: list[planner_pb2.PlanEvent],
    state: run_pb2.RunState.ValueType,
    reason: str,
) -> None:
    orchestrator.peers.plan(*events, END)
    ending = run_ended(await orchestrator.run())
    assert ending.state == state
    assert ending.failure.reason == reason
    assert len(orchestrator.peers.answered) == 1


async def test_interrupted_plan_stream_is_continued(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1))
    orchestrator.peers.plan(task(2, text=ref(1)), END)
    events = await orchestrator.run()
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert orchestrator.peers.planned[1].goal.HasField("continuation")
    assert [prior.task.id for prior in orchestrator.peers.planned[1].prior] == [1]
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_planner_that_continues_receives_the_failures_of_tasks(orchestrator: OrchestratorUnderTest) -> None:
    failed = asyncio.Event()

    async def breaking(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        yield task(1, "unheard-of")
        await failed.wait()

    orchestrator.peers.plans.append(breaking)
    orchestrator.peers.plan(task(2), END)
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    async for event in orchestrator.stub.CreateRun(request, timeout=20, metadata=call_context.metadata()):
        if event.HasField("task_ended"):
            failed.set()
    (prior,) = orchestrator.peers.planned[1].prior
    assert prior.state == run_pb2.TASK_STATE_FAILED
    assert prior.summary == "no expert offers unheard-of"


async def test_usage_of_decisions_counts_as_usage_of_the_run(orchestrator: OrchestratorUnderTest) -> None:
    spent = usage_pb2.Usage(input_tokens=10, output_tokens=2, cost=0.5)
    spent.busy.FromSeconds(1)
    orchestrator.peers.usage = spent
    end = planner_pb2.PlanEnd(decision=plan_pb2.Decision(controller=CONTROLLER_LLM, usage=spent))
    orchestrator.peers.plan(task(1), task(2), planner_pb2.PlanEvent(end=end))
    usage = run_ended(await orchestrator.run()).usage
    assert usage.input_tokens == 40
    assert usage.output_tokens == 8
    assert usage.cost == 2.0
    assert usage.busy.ToTimedelta().total_seconds() >= 4


async def test_plan_that_stays_incomplete_runs_with_its_tasks(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1))
    orchestrator.peers.plan()
    events = await orchestrator.run()
    assert len(orchestrator.peers.planned) == 3
    assert task_states(events) == {1: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_INCOMPLETE


async def test_refusal_by_the_planner_fails_the_run_with_its_reason(orchestrator: OrchestratorUnderTest) -> None:
    async def refusing(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        raise InvalidRequest("too long", reason="TOO_LONG", remedy="shorten it")
        yield

    orchestrator.peers.plans.append(refusing)
    ending = run_ended(await orchestrator.run())
    assert ending.state == run_pb2.RUN_STATE_FAILED
    assert ending.failure.reason == "TOO_LONG"
    assert len(orchestrator.peers.planned) == 1


async def test_supplied_plan_runs_without_planning(orchestrator: OrchestratorUnderTest) -> None:
    plan = plan_pb2.Plan(tasks=[task(1).task, task(2, text=ref(1)).task])
    events = await orchestrator.run(plan=plan, request="")
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert [request.goal.WhichOneof("kind") for request in orchestrator.peers.planned] == ["check"]
    completed = next(event.plan_completed for event in events if event.HasField("plan_completed"))
    assert completed.decision.controller == plan_pb2.CONTROLLER_SUPPLIED


async def test_invalid_supplied_plan_is_refused_before_acceptance(
    orchestrator: OrchestratorUnderTest,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator.run(plan=plan_pb2.Plan(tasks=[task_pb2.Task(id=1)]), request="")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "task 2 needs task 9" in (caught.value.details() or "")


async def test_plan_mode_runs_no_task(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run(mode=run_pb2.RUN_MODE_PLAN)
    assert event_kinds(events) == ["run_accepted", "task_planned", "plan_completed", "run_ended"]
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_plan_of_part_of_the_request_is_incomplete(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), note(plan_pb2.NOTE_KIND_UNMAPPED, "what?"), END)
    ending = run_ended(await orchestrator.run(mode=run_pb2.RUN_MODE_PLAN))
    assert ending.state == run_pb2.RUN_STATE_INCOMPLETE
    assert ending.failure.reason == "UNPLANNABLE"


async def test_results_mode_gives_no_answer(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run(mode=run_pb2.RUN_MODE_RESULTS)
    assert "answer_chunk" not in event_kinds(events)
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
