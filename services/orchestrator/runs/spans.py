"""Spans of runs, and of their plans and tasks.

A run outlives the call that created it, and another orchestrator may end it. So its span does not stay open: the first
event stores its trace context, and the orchestrator that ends the run writes the complete span.
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
from services.orchestrator.runs.run_log import RunLog

_NONE = trace.INVALID_SPAN_CONTEXT


def new_trace(*, in_batch: bool) -> event_pb2.Trace | None:
    """Trace context of a new run's span: a child of the current span, or a root for a batch item; None: no tracing."""
    if not (traces := tracing.provider()):
        return None
    from services.common.rpc_telemetry import new_span_context  # noqa: PLC0415  # imported only when tracing is on

    parent = _NONE if in_batch else tracing.current_span_context()
    span = new_span_context(traces, SpanKind.INTERNAL, names.INVOKE_WORKFLOW, parent)
    return event_pb2.Trace(
        traceparent=tracing.traceparent(span), parent_id=f"{parent.span_id:016x}" if parent.is_valid else ""
    )


def use_run_span(stored: event_pb2.Trace) -> AbstractContextManager[None]:
    """Makes the run's span the current one within the block."""
    return tracing.use_parent(_own(stored))


@contextmanager
def takeover_span(run: RunLog) -> Iterator[None]:
    """Span of a takeover by this orchestrator."""
    with use_run_span(run.trace), tracing.start_span(names.TAKE_OVER, {names.RUN: run.id}):
        yield


def write_run_span(run: RunLog, state: "RunState.ValueType", failure: Failure | None) -> None:
    """Writes the run's complete span."""
    own, traces = _own(run.trace), tracing.provider()
    if not (traces and own.trace_flags & trace.TraceFlags.SAMPLED):
        return
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415  # imported only when tracing is on

    workflow = run.fold.run.spec.pipeline.name
    attributes = {
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW: workflow,
        names.CONVERSATION: run.fold.run.conversation_id,
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
            start_time=run.fold.run.create_time.ToNanoseconds(),
            end_time=time.time_ns(),
        )
    )


@contextmanager
def plan_span(run: RunLog, goal: str) -> Iterator[Span]:
    """Span of one call of the planner."""
    attributes = {names.OPERATION: names.PLAN, names.RUN: run.id, names.GOAL: goal}
    with tracing.start_span(names.PLAN, attributes) as span:
        yield span


def add_decision(span: Span, decision: Decision, tasks: int) -> None:
    """Adds the planner's decision to its span."""
    controller = Controller.Name(decision.controller).removeprefix("CONTROLLER_").lower()
    span.set_attributes({names.CONTROLLER: controller, names.TASKS: tasks})
    if decision.fell_back_because:
        span.add_event(names.FELL_BACK, {names.CONTROLLER: controller})


@contextmanager
def task_span(run: RunLog, task: Task) -> Iterator[Span]:
    """Span of one task, from when its inputs are available."""
    attributes: tracing.Attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL: task.task,
        names.TOOL_CALL: f"{run.id}/{task.id}",
        names.RUN: run.id,
        names.TASK_ID: task.id,
    }
    with (
        use_run_span(run.trace),
        tracing.start_span(names.span_name(names.EXECUTE_TOOL, task.task), attributes) as span,
    ):
        yield span


def add_result(span: Span, result: TaskResult) -> None:
    """Adds the result to the task's span."""
    if not span.is_recording():
        return
    attributes: tracing.Attributes = {
        names.MODEL: result.by.model_id,
        names.EXPERT: result.by.expert,
        names.ATTEMPT: result.attempt,
    }
    span.set_attributes(attributes)
    if result.usage.cost:
        span.set_attribute(names.COST, result.usage.cost)
    if result.HasField("failure"):
        tracing.set_error(span, result.failure.reason)


def _own(stored: event_pb2.Trace) -> SpanContext:
    return tracing.extract({"traceparent": stored.traceparent}) if stored.traceparent else _NONE


def _parent(stored: event_pb2.Trace, own: SpanContext) -> SpanContext | None:
    if not stored.parent_id:
        return None
    return SpanContext(own.trace_id, int(stored.parent_id, 16), is_remote=True, trace_flags=own.trace_flags)


def _state(state: "RunState.ValueType") -> str:
    return RunState.Name(state).removeprefix("RUN_STATE_").lower()
