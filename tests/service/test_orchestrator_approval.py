"""Plans that wait for approval before their tasks run."""

import asyncio
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
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
from services.common import call_context
from services.common.errors import InvalidRequest, from_rpc
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.orchestrator import (
    END,
    OrchestratorUnderTest,
    ScriptedPeers,
    connected,
    echo,
    event_kinds,
    note,
    run_ended,
    task,
    task_states,
    text,
)

APPROVE = run_pb2.RUN_MODE_APPROVE


class AwaitingRun:
    """A run whose plan waits for approval, watched to its end."""

    def __init__(self, orchestrator: OrchestratorUnderTest, **spec: Any) -> None:
        self._orchestrator = orchestrator
        self._spec = run_pb2.RunSpec(request="do it", mode=APPROVE, **spec)
        self.events: list[event_pb2.RunEvent] = []
        self.waits = asyncio.Event()
        self._watching = asyncio.create_task(self._watch())

    @property
    def run_id(self) -> str:
        return self.events[0].run_id

    async def _watch(self) -> None:
        async for event in self._orchestrator.stub.CreateRun(
            orchestrator_pb2.CreateRunRequest(spec=self._spec), timeout=20, metadata=call_context.metadata()
        ):
            self.events.append(event)
            if event.HasField("approval_requested"):
                self.waits.set()

    def disconnect(self) -> None:
        """Ends the call that watches the run."""
        self._watching.cancel()

    async def end(self) -> list[event_pb2.RunEvent]:
        await self._watching
        return self.events


@pytest.fixture
async def awaiting_run(orchestrator: OrchestratorUnderTest) -> AwaitingRun:
    orchestrator.peers.plan(task(1), task(2), END)
    return AwaitingRun(orchestrator)


async def test_tasks_run_once_the_plan_is_approved(
    orchestrator: OrchestratorUnderTest, awaiting_run: AwaitingRun
) -> None:
    async with asyncio.timeout(10):
        await awaiting_run.waits.wait()
        assert event_kinds(awaiting_run.events)[-1] == "approval_requested"
        assert "task_selected" not in event_kinds(awaiting_run.events)
        assert (
            await orchestrator.stub.GetRun(gateway_pb2.GetRunRequest(run_id=awaiting_run.run_id), timeout=5)
        ).state == (run_pb2.RUN_STATE_AWAITING_APPROVAL)
        await orchestrator.stub.ApproveRun(gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id), timeout=5)
        events = await awaiting_run.end()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
    assert "taken_over" not in event_kinds(events)


async def test_plan_can_be_replaced_by_the_approval(
    orchestrator: OrchestratorUnderTest, awaiting_run: AwaitingRun
) -> None:
    edited = plan_pb2.Plan(
        tasks=[task_pb2.Task(id=1, task="summarization", arguments={"text": text("something else")})]
    )
    async with asyncio.timeout(10):
        await awaiting_run.waits.wait()
        await orchestrator.stub.ApproveRun(
            gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id, plan=edited), timeout=5
        )
        events = await awaiting_run.end()
    assert task_states(events) == {1: "SUCCEEDED"}
    results = [event.task_ended.result for event in events if event.HasField("task_ended")]
    assert results[0].outputs["text"].text == "something else!"
    run = await orchestrator.stub.GetRun(gateway_pb2.GetRunRequest(run_id=awaiting_run.run_id), timeout=5)
    assert [status.task for status in run.tasks] == list(edited.tasks)


async def test_approval_with_an_invalid_plan_leaves_the_run_waiting(
    orchestrator: OrchestratorUnderTest, awaiting_run: AwaitingRun
) -> None:
    async with asyncio.timeout(10):
        await awaiting_run.waits.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            bad = plan_pb2.Plan(tasks=[task_pb2.Task(id=1)])
            await orchestrator.stub.ApproveRun(
                gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id, plan=bad), timeout=5
            )
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await orchestrator.stub.ApproveRun(gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id), timeout=5)
        assert run_ended(await awaiting_run.end()).state == run_pb2.RUN_STATE_COMPLETED
        with pytest.raises(grpc.aio.AioRpcError) as again:
            await orchestrator.stub.ApproveRun(gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id), timeout=5)
    assert again.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (plan_pb2.Plan(tasks=[task_pb2.Task(id=1, task="x", arguments={"text": text("x" * 5_000_000)})]), "TOO_LARGE"),
        (plan_pb2.Plan(tasks=[task_pb2.Task(id=number, task="x") for number in range(1, 5)]), "BUDGET"),
    ],
    ids=["5 MB inline", "more tasks than the budget has"],
)
async def test_approval_with_a_plan_beyond_the_limits_is_refused(
    orchestrator: OrchestratorUnderTest, plan: plan_pb2.Plan, reason: str
) -> None:
    orchestrator.peers.plan(task(1), END)
    awaiting_run = AwaitingRun(orchestrator, budget=usage_pb2.Budget(tasks=3))
    async with asyncio.timeout(10):
        await awaiting_run.waits.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await orchestrator.stub.ApproveRun(
                gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id, plan=plan), timeout=5
            )
        error = from_rpc(caught.value)
        assert type(error) is InvalidRequest
        assert error.reason == reason
        await orchestrator.stub.ApproveRun(gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id), timeout=5)
        assert run_ended(await awaiting_run.end()).state == run_pb2.RUN_STATE_COMPLETED


async def test_run_waiting_for_approval_can_be_cancelled(
    orchestrator: OrchestratorUnderTest, awaiting_run: AwaitingRun
) -> None:
    async with asyncio.timeout(10):
        await awaiting_run.waits.wait()
        await orchestrator.stub.CancelRun(gateway_pb2.CancelRunRequest(run_id=awaiting_run.run_id), timeout=5)
        events = await awaiting_run.end()
    assert run_ended(events).state == run_pb2.RUN_STATE_CANCELLED
    assert set(task_states(events).values()) == {"CANCELLED"}


async def test_run_is_cancelled_when_its_approval_expires(
    orchestrator: OrchestratorUnderTest, awaiting_run: AwaitingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.runs.executor.APPROVAL_SECONDS", 0.01)
    async with asyncio.timeout(20):
        events = await awaiting_run.end()
    assert run_ended(events).state == run_pb2.RUN_STATE_CANCELLED
    assert run_ended(events).failure.reason == "EXPIRED"


async def test_deadline_is_extended_by_the_wait_for_approval(
    orchestrator: OrchestratorUnderTest, awaiting_run: AwaitingRun
) -> None:
    async with asyncio.timeout(10):
        await awaiting_run.waits.wait()
        before = (
            await orchestrator.stub.GetRun(gateway_pb2.GetRunRequest(run_id=awaiting_run.run_id), timeout=5)
        ).deadline.ToNanoseconds()
        await orchestrator.stub.ApproveRun(gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id), timeout=5)
        events = await awaiting_run.end()
    times = {event.WhichOneof("event"): event.time.ToNanoseconds() for event in events}
    approved = next(event.plan_approved for event in events if event.HasField("plan_approved"))
    waited = times["plan_approved"] - times["approval_requested"]
    assert abs(approved.deadline.ToNanoseconds() - before - waited) < 50e6
    row = (await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(), timeout=5)).runs[0]
    assert abs(row.deadline.ToNanoseconds() - approved.deadline.ToNanoseconds()) < 1e6


async def test_run_approved_after_its_orchestrator_stopped_is_claimed_by_another(
    peers: ScriptedPeers, settings: Settings
) -> None:
    peers.plan(task(1), END)
    async with asyncio.timeout(15):
        async with serve_orchestrator(settings) as running, connected(running) as stub:
            awaiting_run = AwaitingRun(OrchestratorUnderTest(peers, stub, settings))
            await awaiting_run.waits.wait()
            awaiting_run.disconnect()
        async with serve_orchestrator(settings) as running, connected(running) as stub:
            await stub.ApproveRun(gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id), timeout=5)
            watching = stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=awaiting_run.run_id), timeout=10)
            events = [event async for event in watching]
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_approved_run_is_queued_until_a_slot_is_free(peers: ScriptedPeers, settings: Settings) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def held(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        entered.set()
        await release.wait()
        return await echo(request)

    peers.infer["model"] = held
    for _ in range(2):
        peers.plan(task(1), END)
    async with (
        asyncio.timeout(20),
        serve_orchestrator(settings.model_copy(update={"max_runs": 1})) as running,
        connected(running) as stub,
    ):
        orchestrator = OrchestratorUnderTest(peers, stub, settings)
        awaiting_run = AwaitingRun(orchestrator)
        await awaiting_run.waits.wait()
        other = asyncio.create_task(orchestrator.run())
        await entered.wait()
        await stub.ApproveRun(gateway_pb2.ApproveRunRequest(run_id=awaiting_run.run_id), timeout=5)
        assert "plan_approved" not in event_kinds(awaiting_run.events)
        assert (
            await stub.GetRun(gateway_pb2.GetRunRequest(run_id=awaiting_run.run_id), timeout=5)
        ).state == run_pb2.RUN_STATE_QUEUED
        release.set()
        assert run_ended(await awaiting_run.end()).state == run_ended(await other).state == run_pb2.RUN_STATE_COMPLETED


async def test_plan_without_tasks_needs_no_approval(orchestrator: OrchestratorUnderTest) -> None:
    orchestrator.peers.plan(note(plan_pb2.NOTE_KIND_CHAT, "hello"), END)
    events = await orchestrator.run(mode=APPROVE)
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
    assert "approval_requested" not in event_kinds(events)
