"""The spans of runs: a run's own, and those of its plans and tasks beneath it.

A run outlives the call that asked for it and may be ended by another orchestrator than the one that began it. So its
span is not kept open: its name stands in the run's first event, and whoever ends the run writes the span down, whole.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from protos.hugginggpt import semantic_conventions as names
from protos.hugginggpt.v1 import event_pb2
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import Controller, Decision
from protos.hugginggpt.v1.run_pb2 import RunState, TaskResult
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import tracing
from services.orchestrator.runs.run_log import LiveRun

_NONE = trace.INVALID_SPAN_CONTEXT


def begun(*, in_batch: bool) -> event_pb2.Trace | None:
    """The name of a new run's span, within what asks for it; a batch's item has a trace of its own. None: no traces."""
    if not (traces := tracing.provider()):
        return None
    from services.common.rpc_telemetry import new_span_context  # noqa: PLC0415  # loaded where traces are

    parent = _NONE if in_batch else tracing.current_span_context()
    span = new_span_context(traces, SpanKind.INTERNAL, names.INVOKE_WORKFLOW, parent)
    return event_pb2.Trace(
        traceparent=tracing.traceparent(span), parent_id=f"{parent.span_id:016x}" if parent.is_valid else ""
    )


def driving(kept: event_pb2.Trace) -> AbstractContextManager[None]:
    """What is done within the block belongs to the run's span, whatever it was begun in."""
    return tracing.use_parent(_own(kept))


@contextmanager
def taking_over(run: LiveRun) -> Iterator[None]:
    """The span of an orchestrator that goes on with what another has begun."""
    with driving(run.trace), tracing.start_span(names.TAKE_OVER, {names.RUN: run.id}):
        yield


def ended(run: LiveRun, state: "RunState.ValueType", failure: Failure | None) -> None:
    """Writes the run's span down."""
    own, traces = _own(run.trace), tracing.provider()
    if not (traces and own.trace_flags & trace.TraceFlags.SAMPLED):
        return
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415  # loaded where traces are

    workflow = run.view.run.spec.pipeline.name
    attributes = {
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW: workflow,
        names.CONVERSATION: run.view.run.conversation_id,
        names.RUN: run.id,
        names.STATE: _state(state),
    }
    if failure:
        attributes[names.ERROR] = failure.reason
    traces.write(
        ReadableSpan(
            names.span_name(names.INVOKE_WORKFLOW, workflow),
            own,
            _parent(run.trace, own),
            traces.resource,
            {name: value for name, value in attributes.items() if value},
            status=Status(StatusCode.ERROR) if failure else Status(),
            start_time=run.view.run.create_time.ToNanoseconds(),
            end_time=time.time_ns(),
        )
    )


@contextmanager
def planning(run: LiveRun, goal: str) -> Iterator[Span]:
    """The span of one call of the planner."""
    facts = {names.OPERATION: names.PLAN, names.RUN: run.id, names.GOAL: goal}
    with tracing.start_span(names.PLAN, facts) as span:
        yield span


def planned(span: Span, decision: Decision, tasks: int) -> None:
    """What came of it."""
    controller = Controller.Name(decision.controller).removeprefix("CONTROLLER_").lower()
    span.set_attributes({names.CONTROLLER: controller, names.TASKS: tasks})
    if decision.fell_back_because:
        span.add_event(names.FELL_BACK, {names.CONTROLLER: controller})


@contextmanager
def executing(run: LiveRun, task: Task) -> Iterator[Span]:
    """The span of one task, from when what it needs is there."""
    facts: tracing.Attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL: task.task,
        names.TOOL_CALL: f"{run.id}/{task.id}",
        names.RUN: run.id,
        names.TASK_ID: task.id,
    }
    with driving(run.trace), tracing.start_span(names.span_name(names.EXECUTE_TOOL, task.task), facts) as span:
        yield span


def executed(span: Span, result: TaskResult) -> None:
    """What came of it."""
    if not span.is_recording():
        return
    facts: tracing.Attributes = {
        names.MODEL: result.by.model_id,
        names.EXPERT: result.by.expert,
        names.ATTEMPT: result.attempt,
    }
    span.set_attributes(facts)
    if result.usage.cost:
        span.set_attribute(names.COST, result.usage.cost)
    if result.HasField("failure"):
        tracing.set_error(span, result.failure.reason)


def _own(kept: event_pb2.Trace) -> SpanContext:
    return tracing.extract({"traceparent": kept.traceparent}) if kept.traceparent else _NONE


def _parent(kept: event_pb2.Trace, own: SpanContext) -> SpanContext | None:
    if not kept.parent_id:
        return None
    return SpanContext(own.trace_id, int(kept.parent_id, 16), is_remote=True, trace_flags=own.trace_flags)


def _state(state: "RunState.ValueType") -> str:
    return RunState.Name(state).removeprefix("RUN_STATE_").lower()
