"""Runs that spend what they may, find another way, or need not be run again."""

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
from services.orchestrator.__main__ import orchestrator
from services.orchestrator.settings import Settings
from tests.support.orchestrator import END, Cast, House, connected, echo, ended, hanging, kinds, ref, states, task, text

RUN = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))


def budget(**limits: object) -> usage_pb2.Budget:
    made = usage_pb2.Budget(**{key: value for key, value in limits.items() if key != "expert_time"})  # type: ignore[arg-type]
    if isinstance(limits.get("expert_time"), timedelta):
        made.expert_time.FromTimedelta(limits["expert_time"])  # type: ignore[arg-type]
    return made


async def test_spent_tokens_end_the_run_with_what_it_has(house: House) -> None:
    house.cast.usage = usage_pb2.Usage(input_tokens=60)
    house.cast.plan(task(1), task(2, text=ref(1)), task(3, text=ref(2)), END)
    events = await house.run(budget=budget(llm_tokens=150))
    assert ended(events).failure.reason == "BUDGET"
    assert "tokens" in ended(events).failure.message
    assert set(states(events).values()) <= {"FAILED", "SUCCEEDED"}
    assert house.cast.answered[0].without_llm


async def test_tokens_that_suffice_end_nothing(house: House) -> None:
    house.cast.usage = usage_pb2.Usage(input_tokens=10)
    house.cast.plan(task(1), END)
    assert ended(await house.run(budget=budget(llm_tokens=1000))).state == run_pb2.RUN_STATE_COMPLETED
    assert not house.cast.answered[0].without_llm


async def test_what_is_spent_stays_spent_when_another_takes_over(cast: Cast, settings: Settings) -> None:
    answering = asyncio.Event()

    async def hanging_answer() -> AsyncIterator[str]:
        answering.set()
        await asyncio.Event().wait()
        yield ""

    cast.usage, cast.answer = usage_pb2.Usage(input_tokens=60), hanging_answer
    cast.plan(task(1), task(2, text=ref(1)), task(3, text=ref(2)), END)
    spec = run_pb2.RunSpec(request="do it", budget=budget(llm_tokens=150))
    async with asyncio.timeout(20):
        async with orchestrator(settings) as running, connected(running) as stub:
            run_id = (
                await anext(aiter(stub.CreateRun(orchestrator_pb2.CreateRunRequest(spec=spec), timeout=20)))
            ).run_id
            await answering.wait()
        cast.answer = None
        async with orchestrator(settings) as running, connected(running) as stub:
            watching = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=run_id), timeout=20)
            events = [event async for event in watching]
    assert "taken_over" in kinds(events)
    assert ended(events).failure.reason == "BUDGET"
    assert [request.without_llm for request in cast.answered] == [True, True]


async def test_experts_are_stopped_when_their_time_is_spent(house: House) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "quick":
            return await echo(request)
        return await hanging(inferring, cancelled)

    house.cast.infer["model"] = infer
    house.cast.plan(task(1, text=text("quick")), task(2, text=text("slow")), END)
    async with asyncio.timeout(10):
        events = await house.run(budget=budget(expert_time=timedelta(seconds=0.3)))
        await cancelled.wait()
    assert states(events) == {1: "SUCCEEDED", 2: "FAILED"}
    assert (ended(events).state, ended(events).failure.reason) == (run_pb2.RUN_STATE_INCOMPLETE, "BUDGET")


async def test_a_plan_with_too_many_tasks_runs_as_far_as_it_may(house: House) -> None:
    house.cast.plan(task(1), task(2), task(3), END)
    events = await house.run(budget=budget(tasks=2))
    assert states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert (ended(events).state, ended(events).failure.reason) == (run_pb2.RUN_STATE_INCOMPLETE, "BUDGET")


async def broken(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    if request.inputs["text"].text == "hello":
        raise ModelFailed("it broke", remedy="none")
    return await echo(request)


async def test_another_way_to_what_failed_is_asked_for_once(house: House) -> None:
    house.cast.infer["model"] = broken
    house.cast.plan(task(1, text=text("fine")), task(2), task(3, text=ref(2)), END)
    house.cast.another_way = [task(4, text=ref(1)), task(5, text=ref(4))]
    events = await house.run()
    assert house.cast.given_up == [[2]]
    assert states(events) == {1: "SUCCEEDED", 2: "FAILED", 3: "SKIPPED", 4: "SUCCEEDED", 5: "SUCCEEDED"}
    assert ended(events).state == run_pb2.RUN_STATE_COMPLETED
    assert [status.task.id for status in house.cast.answered[0].tasks] == [1, 4, 5]


async def test_another_way_that_fails_too_is_the_end_of_it(house: House) -> None:
    house.cast.infer["model"] = broken
    house.cast.plan(task(1, text=text("fine")), task(2), END)
    house.cast.another_way = [task(3)]
    events = await house.run()
    assert house.cast.given_up == [[2]]
    assert ended(events).state == run_pb2.RUN_STATE_INCOMPLETE
    assert ended(events).failure.reason == "MODEL_FAILED"


async def test_another_way_that_breaks_off_is_not_taken_for_whole(house: House) -> None:
    async def breaking() -> None:
        raise ZeroDivisionError

    house.cast.infer["model"], house.cast.halfway = broken, breaking
    house.cast.plan(task(1, text=text("fine")), task(2), END)
    house.cast.another_way = [task(3, text=ref(1))]
    events = await house.run()
    assert states(events) == {1: "SUCCEEDED", 2: "FAILED", 3: "SUCCEEDED"}
    assert (ended(events).state, ended(events).failure.reason) == (run_pb2.RUN_STATE_INCOMPLETE, "MODEL_FAILED")
    assert any("no other way" in event.plan_completed.decision.reason for event in events)


async def test_another_way_is_planned_to_its_end_by_the_next_owner(cast: Cast, settings: Settings) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    cast.infer["model"], cast.halfway = broken, hang
    cast.plan(task(1, text=text("fine")), task(2), END)
    cast.another_way = [task(3, text=ref(1))]
    async with asyncio.timeout(20):
        async with orchestrator(settings) as running, connected(running) as stub:
            async for event in stub.CreateRun(RUN, timeout=20):
                if event.task_id == 3 and event.HasField("task_ended"):
                    break
        cast.halfway, cast.another_way = None, [task(4, text=ref(3))]
        async with orchestrator(settings) as running, connected(running) as stub:
            watching = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=event.run_id), timeout=20)
            events = [event async for event in watching]
    assert cast.given_up == [[2], [2]]
    assert kinds(events).count("replanning") == 1
    assert states(events) == {1: "SUCCEEDED", 2: "FAILED", 3: "SUCCEEDED", 4: "SUCCEEDED"}
    assert ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_where_there_is_no_other_way_the_failure_stands(house: House) -> None:
    house.cast.infer["model"] = broken
    house.cast.plan(task(1), END)
    events = await house.run()
    assert house.cast.given_up == [[1]]
    assert ended(events).failure.message == "it broke"


async def test_a_supplied_plan_is_not_planned_anew(house: House) -> None:
    house.cast.infer["model"] = broken
    events = await house.run(plan=plan_pb2.Plan(tasks=[task(1).task]))
    assert not house.cast.given_up
    assert "replanning" not in kinds(events)


@pytest.mark.parametrize("bypass", [False, True])
async def test_a_repeatable_task_is_not_run_again_for_the_same_inputs(house: House, bypass: bool) -> None:
    calls: Counter[str] = Counter()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        calls[request.inputs["text"].text] += 1
        return await echo(request)

    house.cast.infer["model"] = infer
    house.cast.candidates[0].revision = "1"
    house.cast.plan(task(1), task(2, text=ref(1)), END)
    first = await house.run()
    again = await house.run(bypass_memo=bypass)
    assert states(first) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert set(states(again).values()) == {"SUCCEEDED" if bypass else "REUSED"}
    assert calls == {"hello": 1 + bypass, "hello!": 1 + bypass}
    results = [event.task_ended.result for event in again if event.HasField("task_ended")]
    assert results[-1].outputs["text"].text == "hello!!"
    assert ended(again).state == run_pb2.RUN_STATE_COMPLETED


@pytest.mark.parametrize("gone", [".json", ""])
async def test_a_result_of_which_a_part_is_gone_is_made_again(house: House, gone: str) -> None:
    store = ArtifactStore.open(house.settings.artifacts_url)
    calls = 0

    async def infer(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal calls
        calls += 1
        made = await store.put("default", b"a picture", media_type="image/png", name="picture")
        return {"image": artifact_pb2.Value(artifact=made)}

    house.cast.infer["model"] = infer
    house.cast.candidates[0].revision = "1"
    picture = task_pb2.Argument(
        value=artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="0" * 64, media_type="image/png"))
    )
    house.cast.plan(task(1, "image-super-resolution", image=picture), END)
    assert states(await house.run()) == {1: "SUCCEEDED"}
    assert states(await house.run()) == {1: "REUSED"}
    path = store.path("default", hashlib.sha256(b"a picture").hexdigest())
    assert path
    path.with_name(path.name + gone).unlink()
    assert states(await house.run()) == {1: "SUCCEEDED"}
    assert calls == 2


async def test_a_result_is_not_found_again_by_another_tenant(house: House) -> None:
    house.cast.candidates[0].revision = "1"
    house.cast.plan(task(1), END)
    with call_context.use_caller(caller_pb2.Caller(tenant="one", policy=caller_pb2.DATA_POLICY_OPEN)):
        assert states(await house.run()) == {1: "SUCCEEDED"}
        assert states(await house.run()) == {1: "REUSED"}
    with call_context.use_caller(caller_pb2.Caller(tenant="two", policy=caller_pb2.DATA_POLICY_OPEN)):
        assert states(await house.run()) == {1: "SUCCEEDED"}


async def test_what_draws_at_random_or_has_no_commit_is_run_again(house: House) -> None:
    house.cast.plan(task(1, "text-generation"), task(2), END)
    for _ in range(2):
        assert set(states(await house.run()).values()) == {"SUCCEEDED"}


async def test_a_seed_is_the_same_at_every_attempt(house: House) -> None:
    seeds: list[str] = []

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        seeds.append(request.parameters_json)
        if len(seeds) == 1:
            raise ModelFailed("it broke", remedy="none")
        return await echo(request)

    house.cast.infer["model"] = infer
    house.cast.candidates.append(house.cast.candidates[0])
    house.cast.plan(task(1, "text-generation"), END)
    events = await house.run()
    (result,) = [event.task_ended.result for event in events if event.HasField("task_ended")]
    assert seeds == [f'{{"seed":{result.seed}}}'] * 2
    assert 0 < result.seed < 2**53
