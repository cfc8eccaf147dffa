"""Budgets, replanning of failed tasks, and reuse of earlier results."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    caller_pb2,
    expert_pb2,
    gateway_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
    usage_pb2,
)
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import ModelFailed
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.orchestrator import (
    END,
    OrchestratorUnderTest,
    ScriptedPeers,
    connected,
    echo,
    event_kinds,
    ref,
    run_ended,
    task,
    task_states,
    text,
    wait_until_cancelled,
)

RUN = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))


def budget(**limits: object) -> usage_pb2.Budget:
    result = usage_pb2.Budget(**{key: value for key, value in limits.items() if key != "expert_time"})  # type: ignore[arg-type]
    if isinstance(limits.get("expert_time"), timedelta):
        result.expert_time.FromTimedelta(limits["expert_time"])  # type: ignore[arg-type]
    return result


async def test_run_ends_with_its_results_when_its_tokens_are_used(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.usage = usage_pb2.Usage(input_tokens=60)
    orchestrator.peers.plan(task(1), task(2, text=ref(1)), task(3, text=ref(2)), END)
    events = await orchestrator.run(budget=budget(llm_tokens=150))
    assert run_ended(events).failure.reason == "BUDGET"
    assert "tokens" in run_ended(events).failure.message
    assert set(task_states(events).values()) <= {"FAILED", "SUCCEEDED"}
    assert orchestrator.peers.answered[0].without_llm


async def test_run_within_its_token_budget_completes(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.usage = usage_pb2.Usage(input_tokens=10)
    orchestrator.peers.plan(task(1), END)
    assert run_ended(await orchestrator.run(budget=budget(llm_tokens=1000))).state == run_pb2.RUN_STATE_COMPLETED
    assert not orchestrator.peers.answered[0].without_llm


async def test_usage_counts_after_a_takeover(peers: ScriptedPeers, settings: Settings) -> None:
    answering = asyncio.Event()

    async def hanging_answer() -> AsyncIterator[str]:
        answering.set()
        await asyncio.Event().wait()
        yield ""

    peers.usage, peers.answer = usage_pb2.Usage(input_tokens=60), hanging_answer
    peers.plan(task(1), task(2, text=ref(1)), task(3, text=ref(2)), END)
    spec = run_pb2.RunSpec(request="do it", budget=budget(llm_tokens=150))
    async with asyncio.timeout(20):
        async with serve_orchestrator(settings) as running, connected(running) as stub:
            run_id = (
                await anext(aiter(stub.CreateRun(orchestrator_pb2.CreateRunRequest(spec=spec), timeout=20)))
            ).run_id
            await answering.wait()
        peers.answer = None
        async with serve_orchestrator(settings) as running, connected(running) as stub:
            watching = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=run_id), timeout=20)
            events = [event async for event in watching]
    assert "taken_over" in event_kinds(events)
    assert run_ended(events).failure.reason == "BUDGET"
    assert [request.without_llm for request in peers.answered] == [True, True]


async def test_expert_calls_are_cancelled_when_expert_time_is_used(orchestrator: OrchestratorUnderTest) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "quick":
            return await echo(request)
        return await wait_until_cancelled(inferring, cancelled)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1, text=text("quick")), task(2, text=text("slow")), END)
    async with asyncio.timeout(10):
        events = await orchestrator.run(budget=budget(expert_time=timedelta(seconds=0.3)))
        await cancelled.wait()
    assert task_states(events) == {1: "SUCCEEDED", 2: "FAILED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_INCOMPLETE
    assert run_ended(events).failure.reason == "BUDGET"


async def test_plan_with_more_tasks_than_the_budget_runs_up_to_the_limit(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), task(2), task(3), END)
    events = await orchestrator.run(budget=budget(tasks=2))
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_INCOMPLETE
    assert run_ended(events).failure.reason == "BUDGET"


async def broken(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    if request.inputs["text"].text == "hello":
        raise ModelFailed("it broke", remedy="none")
    return await echo(request)


async def test_failed_tasks_are_replanned_once(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.infer["model"] = broken
    orchestrator.peers.plan(task(1, text=text("fine")), task(2), task(3, text=ref(2)), END)
    orchestrator.peers.replacement_tasks = [task(4, text=ref(1)), task(5, text=ref(4))]
    events = await orchestrator.run()
    assert orchestrator.peers.replanned == [[2]]
    assert task_states(events) == {1: "SUCCEEDED", 2: "FAILED", 3: "SKIPPED", 4: "SUCCEEDED", 5: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
    assert [status.task.id for status in orchestrator.peers.answered[0].tasks] == [1, 4, 5]


async def test_run_ends_when_replanned_tasks_fail_too(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.infer["model"] = broken
    orchestrator.peers.plan(task(1, text=text("fine")), task(2), END)
    orchestrator.peers.replacement_tasks = [task(3)]
    events = await orchestrator.run()
    assert orchestrator.peers.replanned == [[2]]
    assert run_ended(events).state == run_pb2.RUN_STATE_INCOMPLETE
    assert run_ended(events).failure.reason == "MODEL_FAILED"


async def test_interrupted_replanning_replaces_no_failure(orchestrator: OrchestratorUnderTest) -> None:
    async def breaking() -> None:
        raise ZeroDivisionError

    orchestrator.peers.infer["model"], orchestrator.peers.before_replan_end = broken, breaking
    orchestrator.peers.plan(task(1, text=text("fine")), task(2), END)
    orchestrator.peers.replacement_tasks = [task(3, text=ref(1))]
    events = await orchestrator.run()
    assert task_states(events) == {1: "SUCCEEDED", 2: "FAILED", 3: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_INCOMPLETE
    assert run_ended(events).failure.reason == "MODEL_FAILED"
    assert any("no alternative" in event.plan_completed.decision.reason for event in events)


async def test_replanning_is_continued_by_the_next_owner(peers: ScriptedPeers, settings: Settings) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    peers.infer["model"], peers.before_replan_end = broken, hang
    peers.plan(task(1, text=text("fine")), task(2), END)
    peers.replacement_tasks = [task(3, text=ref(1))]
    async with asyncio.timeout(20):
        async with serve_orchestrator(settings) as running, connected(running) as stub:
            async for event in stub.CreateRun(RUN, timeout=20):
                if event.task_id == 3 and event.HasField("task_ended"):
                    break
        peers.before_replan_end, peers.replacement_tasks = None, [task(4, text=ref(3))]
        async with serve_orchestrator(settings) as running, connected(running) as stub:
            watching = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=event.run_id), timeout=20)
            events = [event async for event in watching]
    assert peers.replanned == [[2], [2]]
    assert event_kinds(events).count("replanning") == 1
    assert task_states(events) == {1: "SUCCEEDED", 2: "FAILED", 3: "SUCCEEDED", 4: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_failure_remains_without_replanned_tasks(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.infer["model"] = broken
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    assert orchestrator.peers.replanned == [[1]]
    assert run_ended(events).failure.message == "it broke"


async def test_supplied_plan_is_not_replanned(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.infer["model"] = broken
    events = await orchestrator.run(plan=plan_pb2.Plan(tasks=[task(1).task]))
    assert not orchestrator.peers.replanned
    assert "replanning" not in event_kinds(events)


@pytest.mark.parametrize("bypass", [False, True])
async def test_result_of_a_deterministic_task_is_reused_for_equal_inputs(
    orchestrator: OrchestratorUnderTest, bypass: bool
) -> None:
    calls: Counter[str] = Counter()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        calls[request.inputs["text"].text] += 1
        return await echo(request)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.candidates[0].candidate.revision = "1"
    orchestrator.peers.plan(task(1), task(2, text=ref(1)), END)
    first = await orchestrator.run()
    again = await orchestrator.run(bypass_memo=bypass)
    assert task_states(first) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert set(task_states(again).values()) == {"SUCCEEDED" if bypass else "REUSED"}
    assert calls == {"hello": 1 + bypass, "hello!": 1 + bypass}
    results = [event.task_ended.result for event in again if event.HasField("task_ended")]
    assert results[-1].outputs["text"].text == "hello!!"
    assert run_ended(again).state == run_pb2.RUN_STATE_COMPLETED


@pytest.mark.parametrize("suffix", [".json", ""])
async def test_result_with_a_deleted_artifact_is_not_reused(orchestrator: OrchestratorUnderTest, suffix: str) -> None:
    store = ArtifactStore.open(orchestrator.settings.artifacts_url)
    calls = 0

    async def infer(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal calls
        calls += 1
        result = await store.put("default", b"a picture", media_type="image/png", name="picture")
        return {"image": artifact_pb2.Value(artifact=result)}

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.candidates[0].candidate.revision = "1"
    picture = task_pb2.Argument(
        value=artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="0" * 64, media_type="image/png"))
    )
    orchestrator.peers.plan(task(1, "image-super-resolution", image=picture), END)
    assert task_states(await orchestrator.run()) == {1: "SUCCEEDED"}
    assert task_states(await orchestrator.run()) == {1: "REUSED"}
    path = store.path("default", hashlib.sha256(b"a picture").hexdigest())
    assert path
    path.with_name(path.name + suffix).unlink()
    assert task_states(await orchestrator.run()) == {1: "SUCCEEDED"}
    assert calls == 2


async def test_result_is_not_reused_by_another_tenant(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.candidates[0].candidate.revision = "1"
    orchestrator.peers.plan(task(1), END)
    with call_context.use_caller(caller_pb2.Caller(tenant="one", policy=caller_pb2.DATA_POLICY_OPEN)):
        assert task_states(await orchestrator.run()) == {1: "SUCCEEDED"}
        assert task_states(await orchestrator.run()) == {1: "REUSED"}
    with call_context.use_caller(caller_pb2.Caller(tenant="two", policy=caller_pb2.DATA_POLICY_OPEN)):
        assert task_states(await orchestrator.run()) == {1: "SUCCEEDED"}


async def test_result_of_a_random_task_or_unknown_commit_is_not_reused(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1, "text-generation"), task(2), END)
    for _ in range(2):
        assert set(task_states(await orchestrator.run()).values()) == {"SUCCEEDED"}


async def test_seed_is_the_same_at_every_attempt(orchestrator: OrchestratorUnderTest) -> None:
    seeds: list[str] = []

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        seeds.append(request.parameters_json)
        if len(seeds) == 1:
            raise ModelFailed("it broke", remedy="none")
        return await echo(request)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.candidates.append(orchestrator.peers.candidates[0])
    orchestrator.peers.plan(task(1, "text-generation"), END)
    events = await orchestrator.run()
    (result,) = [event.task_ended.result for event in events if event.HasField("task_ended")]
    assert seeds == [f'{{"seed":{result.seed}}}'] * 2
    assert 0 < result.seed < 2**53
