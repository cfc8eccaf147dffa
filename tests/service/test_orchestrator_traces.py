"""What is traced of a run: one trace, from whoever asks to the experts, whoever drives it and however it ends."""

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

ASKED = 0x1234
ABOVE = trace.SpanContext(ASKED, 8, is_remote=True, trace_flags=trace.TraceFlags(1))
"""Within which tests ask."""

WORDS = "a secret that nobody but the models may read"


pytestmark = pytest.mark.usefixtures("traces")


async def run(orchestrator: OrchestratorUnderTest, traces: RecordedTraces, **spec: Any) -> list[event_pb2.RunEvent]:
    """A run that is asked for within a trace; back once all of it is written down."""
    with trace.use_span(trace.NonRecordingSpan(ABOVE)):
        events = await orchestrator.run(**spec)
    async with asyncio.timeout(5):
        await traces.ended("hugginggpt.internal.v1.OrchestratorService/CreateRun", 2)
    return events


async def planned(call: Any) -> str:
    """The id of a run, once its plan is there."""
    async for event in call:
        if event.HasField("plan_completed"):
            return str(event.run_id)
    pytest.fail("the run ended without a plan")


def named(traces: RecordedTraces, name: str) -> list[ReadableSpan]:
    return [span for span in traces.get_finished_spans() if span.name == name]


def one(traces: RecordedTraces, name: str) -> ReadableSpan:
    (span,) = named(traces, name)
    return span


def above(traces: RecordedTraces, span: ReadableSpan) -> list[str]:
    """The names of the spans in which a span is, the nearest first."""
    by_id = {each.context.span_id: each for each in traces.get_finished_spans() if each.context}
    names = []
    while span.parent and span.parent.span_id in by_id:
        span = by_id[span.parent.span_id]
        names.append(span.name)
    return names


def told(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


PLAN_RPC, INFER_RPC = "hugginggpt.internal.v1.PlannerService/Plan", "hugginggpt.v1.ExpertService/Infer"
RUN_RPC, RESPOND_RPC = (
    "hugginggpt.internal.v1.OrchestratorService/CreateRun",
    "hugginggpt.internal.v1.ResponderService/Respond",
)


async def test_a_run_is_one_trace_from_whoever_asks_to_the_experts(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    orchestrator.peers.plan(task(1), task(2, text=ref(1)), END)
    events = await run(orchestrator, traces)
    assert {span.context.trace_id for span in traces.get_finished_spans() if span.context} == {ASKED}
    own = one(traces, "invoke_workflow")
    assert above(traces, own) == [RUN_RPC, RUN_RPC]
    assert above(traces, one(traces, "plan")) == ["invoke_workflow", RUN_RPC, RUN_RPC]
    assert above(traces, named(traces, PLAN_RPC)[0])[:2] == [PLAN_RPC, "plan"]
    tools = named(traces, "execute_tool summarization")
    assert [above(traces, tool)[0] for tool in tools] == ["invoke_workflow"] * 2
    assert [above(traces, call)[-4] for call in named(traces, INFER_RPC)] == ["execute_tool summarization"] * 4
    assert above(traces, named(traces, RESPOND_RPC)[0])[1] == "invoke_workflow"
    assert own.attributes == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.conversation.id": events[0].run_id,
        "hugginggpt.run.id": events[0].run_id,
        "hugginggpt.state": "completed",
    }
    assert own.start_time == events[0].time.ToNanoseconds()


async def test_a_task_s_span_says_which_model_did_it_and_never_of_what(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    orchestrator.peers.plan(task(1, text=text(WORDS)), END)
    (first, *_) = await run(orchestrator, traces, request=WORDS)
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
        assert WORDS not in span.to_json()


async def test_retries_fallbacks_and_circuits_are_events_of_the_task(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    calls = 0

    async def moody(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal calls
        calls += 1
        raise Overloaded(WORDS) if calls == 1 else CorruptData(WORDS)

    async def well(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        return {"text": artifact_pb2.Value(text="well")}

    orchestrator.peers.infer = {"model": moody, "backup": well}
    orchestrator.peers.candidates.append(candidate("backup", orchestrator.peers.candidates[0].endpoints[0].address))
    orchestrator.peers.plan(task(1), END)
    await run(orchestrator, traces)
    tool = one(traces, "execute_tool summarization")
    assert [(name, facts["error.type"], facts["hugginggpt.next"]) for name, facts in told(tool)] == [
        ("attempt_failed", "OVERLOADED", "retry"),
        ("attempt_failed", CorruptData.reason, "next_candidate"),
    ]
    assert (tool.attributes or {})["hugginggpt.model.id"] == "backup"
    assert tool.status.is_ok
    assert not any(WORDS in span.to_json() for span in named(traces, tool.name))

    calls, orchestrator.peers.infer["backup"] = 1, moody
    orchestrator.peers.plan(task(1), END)
    for _ in range(2):
        await run(orchestrator, traces)
    events = [event for span in named(traces, tool.name) for event in told(span)]
    assert ("circuit_opened", {"hugginggpt.expert": "fake", "hugginggpt.model.id": "model"}) in [
        (name, {key: value for key, value in facts.items() if key != "hugginggpt.circuit"}) for name, facts in events
    ]


async def test_a_task_that_fails_is_told_by_its_reason(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    async def refuse(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        raise InvalidRequest(WORDS)

    orchestrator.peers.infer["model"] = refuse
    orchestrator.peers.plan(task(1), END)
    await run(orchestrator, traces)
    for name in ("execute_tool summarization", "invoke_workflow"):
        span = one(traces, name)
        assert (span.status.status_code, (span.attributes or {})["error.type"]) == (trace.StatusCode.ERROR, "INVALID")
        assert WORDS not in span.to_json()


async def test_a_run_that_another_orchestrator_ends_stays_one_trace(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    begun, going = asyncio.Event(), asyncio.Event()

    async def slow(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        begun.set()
        await going.wait()
        return {"text": request.inputs["text"]}

    orchestrator.peers.infer["model"] = slow
    orchestrator.peers.plan(task(1), END)
    settings = orchestrator.settings.model_copy(update={"lease_seconds": 3.0})
    request = orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it"))
    async with asyncio.timeout(20):
        async with serve_orchestrator(settings) as first, connected(first) as stub:
            with trace.use_span(trace.NonRecordingSpan(ABOVE)):
                call = stub.CreateRun(request, timeout=20, metadata=call_context.metadata())
                accepted = await planned(call)
            await begun.wait()
        going.set()
        async with serve_orchestrator(settings) as second, connected(second) as stub:
            watch = gateway_pb2.WatchRunRequest(run_id=accepted)
            events = [event async for event in stub.WatchRun(watch, timeout=20, metadata=call_context.metadata())]
    assert any(event.HasField("taken_over") for event in events)
    own = one(traces, "invoke_workflow")
    assert own.context
    assert own.context.trace_id == ASKED
    assert above(traces, one(traces, "take_over"))[0] == "invoke_workflow"
    tools = named(traces, "execute_tool summarization")
    assert [above(traces, tool)[0] for tool in tools] == ["invoke_workflow"] * len(tools)
    assert [(tool.attributes or {}).get("error.type") for tool in tools] == ["CANCELLED", None]


async def test_an_item_of_a_batch_has_a_trace_of_its_own(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    asking = OrchestratorClient(orchestrator.stub)
    with trace.use_span(trace.NonRecordingSpan(ABOVE)):
        batch = await asking.ended((await asking.start(notes(3), 3, plan=PINNED)).batch_id)
    assert batch.counts.completed == 3
    items = await traces.ended("invoke_workflow", 3)
    ids = {item.context.trace_id for item in items if item.context}
    assert (len(ids), ASKED in ids, {item.parent for item in items}) == (3, False, {None})
    for tool in named(traces, "execute_tool summarization"):
        assert above(traces, tool) == ["invoke_workflow"]


async def test_another_planner_than_was_wanted_is_an_event(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    decision = plan_pb2.Decision(controller=CONTROLLER_EMBEDDED, llm_model="small", fell_back_because=WORDS)
    orchestrator.peers.plan(task(1), planner_pb2.PlanEvent(end=planner_pb2.PlanEnd(decision=decision)))
    await run(orchestrator, traces)
    assert told(one(traces, "plan")) == [("fell_back", {"hugginggpt.controller": "embedded"})]


async def test_who_samples_nothing_writes_nothing_down(
    orchestrator: OrchestratorUnderTest, traces: RecordedTraces
) -> None:
    unwanted = trace.SpanContext(ASKED, 8, is_remote=True, trace_flags=trace.TraceFlags(0))
    orchestrator.peers.plan(task(1), END)
    with trace.use_span(trace.NonRecordingSpan(unwanted)):
        await orchestrator.run()
    assert traces.get_finished_spans() == ()
