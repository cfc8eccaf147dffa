"""Runs as their callers see them: created, watched, cancelled, listed, taken over."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

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


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"request": "  "}, grpc.StatusCode.INVALID_ARGUMENT),
        (
            {"inputs": [artifact_pb2.NamedValue(name="a"), artifact_pb2.NamedValue(name="a")]},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            {
                "plan": plan_pb2.Plan(tasks=[task_pb2.Task(id=1), task_pb2.Task(id=2)]),
                "budget": usage_pb2.Budget(tasks=1),
            },
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            {"inputs": [artifact_pb2.NamedValue(name="a", value=artifact_pb2.Value(text="x" * 300_000))]},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            {"plan": plan_pb2.Plan(tasks=[task_pb2.Task(id=1, task="x", arguments={"text": text("x" * 5_000_000)})])},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            {"plan": plan_pb2.Plan(tasks=[task_pb2.Task(id=1, task="x", parameters_json='"' + "x" * 300_000 + '"')])},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        ({"parent_run_id": "run_unknown"}, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_invalid_request_is_refused(
    orchestrator: OrchestratorUnderTest, spec: dict[str, Any], code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator.run(**spec)
    assert caught.value.code() is code


async def test_run_continues_after_its_call_is_cancelled(orchestrator: OrchestratorUnderTest) -> None:
    may_continue, inferring = asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        inferring.set()
        await may_continue.wait()
        return await echo(request)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1), END)
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    call = orchestrator.stub.CreateRun(request, timeout=20)
    first = await anext(aiter(call))
    await inferring.wait()
    call.cancel()
    may_continue.set()
    watch = orchestrator.stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=first.run_id, after_sequence=1), timeout=20)
    events = [event async for event in watch]
    assert events[0].sequence == 2
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_cancel_stops_the_expert_call_and_ends_the_run(orchestrator: OrchestratorUnderTest) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    orchestrator.peers.infer["model"] = lambda _: wait_until_cancelled(inferring, cancelled)
    orchestrator.peers.plan(task(1), END)
    running = asyncio.create_task(orchestrator.run())
    await inferring.wait()
    (run,) = (await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(), timeout=5)).runs
    await orchestrator.stub.CancelRun(gateway_pb2.CancelRunRequest(run_id=run.run_id), timeout=5)
    async with asyncio.timeout(5):
        await cancelled.wait()
        events = await running
    assert task_states(events) == {1: "CANCELLED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_CANCELLED


async def test_run_is_cancelled_with_its_call_if_requested(orchestrator: OrchestratorUnderTest) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    orchestrator.peers.infer["model"] = lambda _: wait_until_cancelled(inferring, cancelled)
    orchestrator.peers.plan(task(1), END)
    running = asyncio.create_task(orchestrator.run(on_disconnect=run_pb2.ON_DISCONNECT_CANCEL))
    await inferring.wait()
    running.cancel()
    async with asyncio.timeout(5):
        await cancelled.wait()


async def test_run_ends_with_its_results_at_its_deadline(orchestrator: OrchestratorUnderTest) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "slow":
            return await wait_until_cancelled(inferring, cancelled)
        return await echo(request)

    orchestrator.peers.infer["model"] = infer
    orchestrator.peers.plan(task(1), task(2, text=text("slow")), END)
    budget = usage_pb2.Budget()
    budget.wall_time.FromMilliseconds(500)
    events = await orchestrator.run(budget=budget)
    assert task_states(events) == {1: "SUCCEEDED", 2: "FAILED"}
    ending = run_ended(events)
    assert ending.state == run_pb2.RUN_STATE_INCOMPLETE
    assert ending.failure.reason == "DEADLINE"
    assert "answer_chunk" in event_kinds(events)


async def test_equal_requests_with_one_idempotency_key_are_one_run(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    first = await orchestrator.run(idempotency_key="k")
    again = await orchestrator.run(idempotency_key="k")
    assert first == again
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator.run(idempotency_key="k", request="something else")
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_state_of_a_run_follows_from_its_events(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    run = await orchestrator.stub.GetRun(gateway_pb2.GetRunRequest(run_id=events[0].run_id), timeout=5)
    assert run.state == run_pb2.RUN_STATE_COMPLETED
    assert run.answer == "so it is"
    assert run.last_sequence == events[-1].sequence
    assert run.tasks[0].result.outputs["text"].text == "hello!"
    assert not run.HasField("failure")
    assert run.usage.elapsed.ToNanoseconds() > 0


@pytest.mark.parametrize("after", [0, 3, 8, 1000, 2**63 - 1])
async def test_watch_of_an_ended_run_ends(orchestrator: OrchestratorUnderTest, after: int) -> None:
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator.run()
    watch = orchestrator.stub.WatchRun(
        gateway_pb2.WatchRunRequest(run_id=events[0].run_id, after_sequence=after), timeout=5
    )
    assert [event.sequence async for event in watch] == list(range(after + 1, len(events) + 1))


async def test_runs_are_listed_in_pages_newest_first(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(END)
    ids = [(await orchestrator.run(request=f"run {number}"))[0].run_id for number in range(5)]
    listed, token = [], ""
    for _ in range(3):
        page = await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(page_size=2, page_token=token), timeout=5)
        listed += [run.run_id for run in page.runs]
        token = page.next_page_token
    assert listed == ids[::-1]
    assert token == ""


async def test_basic_view_of_run_equals_the_listed_run(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    run_id = (await orchestrator.run())[0].run_id
    basic = await orchestrator.stub.GetRun(
        gateway_pb2.GetRunRequest(run_id=run_id, view=run_pb2.RUN_VIEW_BASIC), timeout=5
    )
    (listed,) = (await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(), timeout=5)).runs
    assert basic == listed
    assert basic.state == run_pb2.RUN_STATE_COMPLETED
    assert basic.last_sequence > 1
    assert len(basic.tasks) == 0


async def test_first_turns_of_conversations_can_be_listed(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(END)
    first = (await orchestrator.run())[0].run_id
    await orchestrator.run(parent_run_id=first)
    page = await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(first_turns=True), timeout=5)
    assert [run.run_id for run in page.runs] == [first]


async def test_ended_runs_of_all_tenants_are_listed_in_the_order_of_their_end(
    orchestrator: OrchestratorUnderTest,
) -> None:
    orchestrator.peers.plan(END)
    ended = []
    for tenant in ("acme", "other", "acme"):
        with call_context.use_caller(caller_pb2.Caller(tenant=tenant, key_id=f"key of {tenant}")):
            ended.append((await orchestrator.run())[0].run_id)
    listed, request = list[orchestrator_pb2.EndedRun](), orchestrator_pb2.ListEndedRunsRequest(page_size=2)
    while page := await orchestrator.stub.ListEndedRuns(request, timeout=5):
        listed += page.runs
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    assert [run.run_id for run in listed] == ended
    assert [run.caller.key_id for run in listed] == ["key of acme", "key of other", "key of acme"]
    assert all(run.state == run_pb2.RUN_STATE_FAILED and run.HasField("usage") for run in listed)  # nothing was planned
    request = orchestrator_pb2.ListEndedRunsRequest(ended_after=listed[1].end_time)
    later = await orchestrator.stub.ListEndedRuns(request, timeout=5)
    assert [run.run_id for run in later.runs] == ended[1:]


async def test_negative_page_size_is_refused(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    await orchestrator.run()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(page_size=-2), timeout=5)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_time_out_of_range_is_refused(orchestrator: OrchestratorUnderTest) -> None:
    out_of_range = Timestamp(seconds=-(2**63))
    for call in (
        orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(created_after=out_of_range), timeout=5),
        orchestrator.stub.ListEndedRuns(orchestrator_pb2.ListEndedRunsRequest(ended_after=out_of_range), timeout=5),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_runs_are_hidden_from_other_tenants(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    run_id = (await orchestrator.run())[0].run_id
    with call_context.use_caller(caller_pb2.Caller(tenant="other")):
        metadata = call_context.metadata()
    calls: list[Any] = [
        orchestrator.stub.GetRun(gateway_pb2.GetRunRequest(run_id=run_id), timeout=5, metadata=metadata),
        orchestrator.stub.CancelRun(gateway_pb2.CancelRunRequest(run_id=run_id), timeout=5, metadata=metadata),
        orchestrator.stub.DeleteRun(gateway_pb2.DeleteRunRequest(run_id=run_id), timeout=5, metadata=metadata),
        anext(
            aiter(orchestrator.stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=run_id), timeout=5, metadata=metadata))
        ),
    ]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert not (await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(), timeout=5, metadata=metadata)).runs


async def test_planner_receives_the_caller_with_policy_run_and_deadline(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(END)
    with call_context.use_caller(caller_pb2.Caller(tenant="acme", policy=caller_pb2.DATA_POLICY_OPEN)):
        events = await orchestrator.run()
    (caller,) = orchestrator.peers.callers
    assert caller.tenant == "acme"
    assert caller.policy == caller_pb2.DATA_POLICY_OPEN
    assert caller.run_id == events[0].run_id
    assert caller.deadline == events[0].run_accepted.deadline


async def test_planner_receives_the_earlier_turns(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(task(1), END)
    first = await orchestrator.run(request="read this")
    second = await orchestrator.run(request="and now that", parent_run_id=first[0].run_id)
    assert [turn.text for turn in orchestrator.peers.planned[1].conversation] == [
        "read this",
        "so it is",
        "and now that",
    ]
    assert second[0].run_accepted.conversation_id == first[0].run_id


@pytest.mark.parametrize("policy_of_second", [caller_pb2.DATA_POLICY_LOCAL, caller_pb2.DATA_POLICY_UNSPECIFIED])
async def test_run_has_policy_local_if_its_parent_has(
    orchestrator: OrchestratorUnderTest, policy_of_second: caller_pb2.DataPolicy.ValueType
) -> None:
    orchestrator.peers.plan(END)
    parent = ""
    for policy in (
        caller_pb2.DATA_POLICY_OPEN,
        policy_of_second,
        caller_pb2.DATA_POLICY_OPEN,
        caller_pb2.DATA_POLICY_OPEN,
    ):
        with call_context.use_caller(caller_pb2.Caller(tenant="acme", policy=policy)):
            parent = (await orchestrator.run(parent_run_id=parent))[0].run_id
    policies = [caller.policy for caller in orchestrator.peers.callers]
    assert policies == [
        caller_pb2.DATA_POLICY_OPEN,
        policy_of_second,
        caller_pb2.DATA_POLICY_LOCAL,
        caller_pb2.DATA_POLICY_LOCAL,
    ]


async def test_run_of_a_stopped_orchestrator_is_completed_by_another(peers: ScriptedPeers, settings: Settings) -> None:
    calls: list[str] = []
    hang = asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        calls.append(request.inputs["text"].text)
        if calls == ["hello", "hello!"]:
            hang.set()
            await asyncio.Event().wait()
        return await echo(request)

    peers.infer["model"] = infer
    peers.plan(task(1), task(2, text=ref(1)), END)
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        call = stub.CreateRun(request, timeout=20)
        run_id = (await anext(aiter(call))).run_id
        await hang.wait()
    async with serve_orchestrator(settings) as running, connected(running) as stub, asyncio.timeout(10):
        watch = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=run_id), timeout=20)
        events = [event async for event in watch]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert "taken_over" in event_kinds(events)
    assert calls == ["hello", "hello!", "hello!"]
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_run_is_watched_and_cancelled_through_another_orchestrator(
    peers: ScriptedPeers, settings: Settings
) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    peers.infer["model"] = lambda _: wait_until_cancelled(inferring, cancelled)
    peers.plan(task(1), END)
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    async with (
        serve_orchestrator(settings) as owner,
        connected(owner) as owner_stub,
        serve_orchestrator(settings) as other,
        connected(other) as other_stub,
        asyncio.timeout(10),
    ):
        call = owner_stub.CreateRun(request, timeout=20)
        run_id = (await anext(aiter(call))).run_id
        await inferring.wait()
        watch = other_stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=run_id), timeout=20)
        assert (await anext(aiter(watch))).sequence == 1
        await other_stub.CancelRun(gateway_pb2.CancelRunRequest(run_id=run_id), timeout=5)
        await cancelled.wait()
        events = [event async for event in watch]
    assert run_ended(events).state == run_pb2.RUN_STATE_CANCELLED


async def test_run_beyond_the_limit_is_refused(peers: ScriptedPeers, settings: Settings) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    peers.infer["model"] = lambda _: wait_until_cancelled(inferring, cancelled)
    peers.plan(task(1), END)
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    async with serve_orchestrator(settings.model_copy(update={"max_runs": 1})) as running, connected(running) as stub:
        call = stub.CreateRun(request, timeout=20)
        await anext(aiter(call))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stub.CreateRun(request, timeout=20)))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
