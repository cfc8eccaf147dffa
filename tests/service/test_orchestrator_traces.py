"""Traces of runs: one trace from the caller to the experts, also after a takeover."""

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from protos.hugginggpt.internal.v1 import orchestrator_pb2, planner_pb2
from protos.hugginggpt.v1 import artifact_pb2, event_pb2, expert_pb2, gateway_pb2, plan_pb2, run_pb2
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_EMBEDDED
from services.common import call_context
from services.common.errors import CorruptData, InvalidRequest, Overloaded
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from tests.fakes.tracing import RecordedTraces
from tests.support.batches import PINNED, OrchestratorClient, notes
from tests.support.orchestrator import END, OrchestratorUnderTest, candidate, connected, ref, task, text

TRACE_ID = 0x1234
CALLER_SPAN = trace.SpanContext(TRACE_ID, 8, is_remote=True, trace_flags=trace.TraceFlags(1))
"""The current span of the tests' calls."""

SECRET = "a secret that only the models may read"


pytestmark = pytest.mark.usefixtures("traces")


async def run(orchestrator: OrchestratorUnderTest, traces: RecordedTraces, **spec: Any) -> list[event_pb2.RunEvent]:
    """Executes a run within a trace; returns its events once all spans have ended."""
    with trace.use_span(trace.NonRecordingSpan(CALLER_SPAN)):
        events = await orchestrator.run(**spec)
    async with asyncio.timeout(5):
        await traces.ended("hugginggpt.internal.v1.OrchestratorService/CreateRun", 2)
    return events


async def planned(call: Any) -> str:
    """Waits until a run is planned, and returns its ID."""
    async for event in call:
        if event.HasField("plan_completed"):
            return str(event.run_id)
    pytest.fail("the run ended without a plan")


def named(traces: RecordedTraces, name: str) -> list[ReadableSpan]:
    return [span for span in traces.get_finished_spans() if span.name == name]


def one(traces: RecordedTraces, name: str) -> ReadableSpan:
    (span,) = named(traces, name)
    return span


def ancestors(traces: RecordedTraces, span: ReadableSpan) -> list[str]:
    """Names of the ancestors of a span, nearest first."""
    by_id = {each.context.span_id: each for each in traces.get_finished_spans() if each.context}
    names = []
    while span.parent and span.parent.span_id in by_id:
        span = by_id[span.parent.span_id]
        names.append(span.name)
    return names


def span_events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


PLAN_RPC, INFER_RPC = "hugginggpt.internal.v1.PlannerService/Plan", "hugginggpt.v1.ExpertService/Infer"
RUN_RPC, RESPOND_RPC = (
    "hugginggpt.internal.v1.OrchestratorService/CreateRun",
    "hugginggpt.internal.v1.ResponderService/Respond",
)


async def test_run_is_one_trace_from_the_caller_to_the_experts(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    orchestrator.peers.plan(task(1), task(2, text=ref(1)), END)
    events = await run(orchestrator, traces)
    assert {span.context.trace_id for span in traces.get_finished_spans() if span.context} == {TRACE_ID}
    run_span = one(traces, "invoke_workflow")
    assert ancestors(traces, run_span) == [RUN_RPC, RUN_RPC]
    assert ancestors(traces, one(traces, "plan")) == ["invoke_workflow", RUN_RPC, RUN_RPC]
    assert ancestors(traces, named(traces, PLAN_RPC)[0])[:2] == [PLAN_RPC, "plan"]
    tools = named(traces, "execute_tool summarization")
    assert [ancestors(traces, tool)[0] for tool in tools] == ["invoke_workflow"] * 2
    assert [ancestors(traces, call)[-4] for call in named(traces, INFER_RPC)] == ["execute_tool summarization"] * 4
    assert ancestors(traces, named(traces, RESPOND_RPC)[0])[1] == "invoke_workflow"
    assert run_span.attributes == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.conversation.id": events[0].run_id,
        "hugginggpt.run.id": events[0].run_id,
        "hugginggpt.state": "completed",
    }
    assert run_span.start_time == events[0].time.ToNanoseconds()


async def test_span_of_a_task_has_its_model_and_no_user_data(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    orchestrator.peers.plan(task(1, text=text(SECRET)), END)
    (first, *_) = await run(orchestrator, traces, request=SECRET)
    tool = one(traces, "execute_tool summarization")
    assert tool.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "summarization",
        "gen_ai.tool.call.id": f"{first.run_id}/1",
        "hugginggpt.run.id": first.run_id,
        "hugginggpt.task.id": 1,
        "hugginggpt.model.id": "model",
        "hugginggpt.expert": "fake",
        "hugginggpt.attempt": 1,
    }
    assert one(traces, "plan").attributes == {
        "gen_ai.operation.name": "plan",
        "hugginggpt.run.id": first.run_id,
        "hugginggpt.plan.goal": "new_plan",
        "hugginggpt.controller": "embedded",
        "hugginggpt.plan.tasks": 1,
    }
    for span in traces.get_finished_spans():
        assert SECRET not in span.to_json()


async def test_retries_fallbacks_and_circuits_are_events_of_the_task(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    calls = 0

    async def failing(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal calls
        calls += 1
        raise Overloaded(SECRET) if calls == 1 else CorruptData(SECRET)

    async def succeeding(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        return {"text": artifact_pb2.Value(text="succeeding")}

    orchestrator.peers.infer = {"model": failing, "backup": succeeding}
    orchestrator.peers.candidates.append(candidate("backup", orchestrator.peers.candidates[0].endpoints[0].address))
    orchestrator.peers.plan(task(1), END)
    await run(orchestrator, traces)
    tool = one(traces, "execute_tool summarization")
    assert [
        (name, attributes["error.type"], attributes["hugginggpt.next"]) for name, attributes in span_events(tool)
    ] == [
        ("attempt_failed", "OVERLOADED", "retry"),
        ("attempt_failed", CorruptData.reason, "next_candidate"),
    ]
    assert (tool.attributes or {})["hugginggpt.model.id"] == "backup"
    assert tool.status.is_ok
    assert not any(SECRET in span.to_json() for span in named(traces, tool.name))

    calls, orchestrator.peers.infer["backup"] = 1, failing
    orchestrator.peers.plan(task(1), END)
    for _ in range(2):
        await run(orchestrator, traces)
    events = [event for span in named(traces, tool.name) for event in span_events(span)]
    assert ("circuit_opened", {"hugginggpt.expert": "fake", "hugginggpt.model.id": "model"}) in [
        (name, {key: value for key, value in attributes.items() if key != "hugginggpt.circuit"})
        for name, attributes in events
    ]


async def test_span_of_a_failed_task_has_the_reason_as_error_type(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    async def refuse(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        raise InvalidRequest(SECRET)

    orchestrator.peers.infer["model"] = refuse
    orchestrator.peers.plan(task(1), END)
    await run(orchestrator, traces)
    for name in ("execute_tool summarization", "invoke_workflow"):
        span = one(traces, name)
        assert span.status.status_code == trace.StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "INVALID"
        assert SECRET not in span.to_json()


async def test_run_remains_one_trace_after_a_takeover(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def slow(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        started.set()
        await may_end.wait()
        return {"text": request.inputs["text"]}

    orchestrator.peers.infer["model"] = slow
    orchestrator.peers.plan(task(1), END)
    settings = orchestrator.settings.model_copy(update={"lease_seconds": 3.0})
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    async with asyncio.timeout(20):
        async with serve_orchestrator(settings) as first, connected(first) as stub:
            with trace.use_span(trace.NonRecordingSpan(CALLER_SPAN)):
                call = stub.CreateRun(request, timeout=20, metadata=call_context.metadata())
                accepted = await planned(call)
            await started.wait()
        may_end.set()
        async with serve_orchestrator(settings) as second, connected(second) as stub:
            watch = gateway_pb2.WatchRunRequest(run_id=accepted)
            events = [event async for event in stub.WatchRun(watch, timeout=20, metadata=call_context.metadata())]
    assert any(event.HasField("taken_over") for event in events)
    run_span = one(traces, "invoke_workflow")
    assert run_span.context
    assert run_span.context.trace_id == TRACE_ID
    assert ancestors(traces, one(traces, "take_over"))[0] == "invoke_workflow"
    tools = named(traces, "execute_tool summarization")
    assert [ancestors(traces, tool)[0] for tool in tools] == ["invoke_workflow"] * len(tools)
    assert [(tool.attributes or {}).get("error.type") for tool in tools] == ["CANCELLED", None]


async def test_batch_item_has_its_own_trace(orchestrator: OrchestratorUnderTest, traces: RecordedTraces) -> None:
    client = OrchestratorClient(orchestrator.stub)
    with trace.use_span(trace.NonRecordingSpan(CALLER_SPAN)):
        batch = await client.ended((await client.start(notes(3), 3, plan=PINNED)).batch_id)
    assert batch.counts.completed == 3
    items = await traces.ended("invoke_workflow", 3)
    ids = {item.context.trace_id for item in items if item.context}
    assert len(ids) == 3
    assert TRACE_ID not in ids
    assert {item.parent for item in items} == {None}
    for tool in named(traces, "execute_tool summarization"):
        assert ancestors(traces, tool) == ["invoke_workflow"]


async def test_fallback_of_the_planner_is_an_event(orchestrator: OrchestratorUnderTest, traces: RecordedTraces) -> None:
    decision = plan_pb2.Decision(controller=CONTROLLER_EMBEDDED, llm_model="small", fell_back_because=SECRET)
    orchestrator.peers.plan(task(1), planner_pb2.PlanEvent(end=planner_pb2.PlanEnd(decision=decision)))
    await run(orchestrator, traces)
    assert span_events(one(traces, "plan")) == [("fell_back", {"hugginggpt.controller": "embedded"})]


async def test_unsampled_trace_writes_no_spans(orchestrator: OrchestratorUnderTest, traces: RecordedTraces) -> None:
    unsampled = trace.SpanContext(TRACE_ID, 8, is_remote=True, trace_flags=trace.TraceFlags(0))
    orchestrator.peers.plan(task(1), END)
    with trace.use_span(trace.NonRecordingSpan(unsampled)):
        await orchestrator.run()
    assert traces.get_finished_spans() == ()
