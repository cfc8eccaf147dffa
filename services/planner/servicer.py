"""gRPC servicer, and conversions between protobuf messages and the planner's types."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from protos.hugginggpt.internal.v1 import planner_pb2 as pb
from protos.hugginggpt.internal.v1 import planner_pb2_grpc as rpc
from protos.hugginggpt.v1 import artifact_pb2, plan_pb2, run_pb2, task_pb2
from services.planner.plan import (
    Argument,
    Decision,
    File,
    Input,
    Json,
    Many,
    Note,
    Reference,
    Single,
    Task,
    Text,
    Unset,
    Value,
)
from services.planner.planner import Planner, Step
from services.planner.request import Check, Continue, Goal, Named, New, Prior, Replan, Request, State, Turn

LLM_SHARE = 0.8
"""Share of the call's time for the LLM; the rest is reserved for planning without it."""


class PlannerServicer(rpc.PlannerServiceServicer):
    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    async def Plan(self, request: pb.PlanRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        lock = asyncio.Lock()  # gRPC allows one write at a time

        async def emit(step: Step) -> None:
            async with lock:
                await context.write(event_to_pb(step))

        remaining_seconds = context.time_remaining()
        await self._planner.plan(
            request_from_pb(request), emit, seconds=remaining_seconds and remaining_seconds * LLM_SHARE
        )


def request_from_pb(request: pb.PlanRequest) -> Request:
    return Request(
        conversation=tuple(
            Turn(turn.role != run_pb2.ROLE_ASSISTANT, turn.text, _named(turn.attachments))
            for turn in request.conversation
        ),
        inputs=_named(request.inputs),
        prior=tuple(map(_prior, request.prior)),
        goal=_goal(request.goal),
        limit=request.budget.tasks,
    )


_STATES: Mapping[int, State] = {run_pb2.TaskState.Value(f"TASK_STATE_{state.name}"): state for state in State}


def _prior(prior: pb.PriorTask) -> Prior:
    return Prior(task_from_pb(prior.task), _STATES.get(prior.state, State.UNSPECIFIED), prior.summary)


def _goal(goal: pb.PlanGoal) -> Goal:
    match goal.WhichOneof("kind"):
        case "check":
            return Check(tuple(task_from_pb(task) for task in goal.check.draft.tasks))
        case "replan":
            return Replan(tuple(goal.replan.failed))
        case "continuation":
            return Continue()
        case _:
            return New()


def _named(values: Iterable[artifact_pb2.NamedValue]) -> tuple[Named, ...]:
    converted = ((named.name, _value(named.value)) for named in values)
    return tuple(Named(name, value) for name, value in converted if not isinstance(value, Unset))


def task_from_pb(task: task_pb2.Task) -> Task:
    return Task(
        id=task.id,
        task=task.task,
        arguments={name: _argument(argument) for name, argument in task.arguments.items()},
        parameters_json=task.parameters_json,
        pinned_model=task.pinned_model,
        pinned_revision=task.pinned_revision,
        source=task.source,
    )


def _argument(argument: task_pb2.Argument) -> Argument:
    if argument.WhichOneof("kind") == "list":
        return Many(tuple(_single(item) for item in argument.list.items))
    return _single(argument)


def _single(argument: task_pb2.Argument) -> Single:
    match argument.WhichOneof("kind"):
        case "value":
            return _value(argument.value)
        case "reference":
            return Reference(argument.reference.task_id, argument.reference.output)
        case "input":
            return Input(argument.input.name)
        case _:
            return Unset()


def _value(value: artifact_pb2.Value) -> Value | Unset:
    match value.WhichOneof("kind"):
        case "text":
            return Text(value.text)
        case "json":
            return Json(value.json)
        case "artifact":
            artifact = value.artifact
            return File(artifact.sha256, artifact.media_type, artifact.size_bytes, artifact.name)
        case _:
            return Unset()


def event_to_pb(step: Step) -> pb.PlanEvent:
    match step:
        case Task():
            return pb.PlanEvent(task=task_to_pb(step))
        case Note():
            kind = plan_pb2.NoteKind.Value(f"NOTE_KIND_{step.kind.name}")
            return pb.PlanEvent(note=plan_pb2.Note(kind=kind, text=step.text, span=step.span))
        case Decision():
            return pb.PlanEvent(end=pb.PlanEnd(decision=_decision_to_pb(step)))


def _decision_to_pb(decision: Decision) -> plan_pb2.Decision:
    return plan_pb2.Decision(
        controller=plan_pb2.Controller.Value(f"CONTROLLER_{decision.controller.upper()}"),
        llm_model=decision.llm_model,
        reason=decision.reason,
        confidence=decision.confidence,
        fell_back_because=decision.fell_back_because,
        usage=decision.usage.to_proto() if decision.usage else None,
        version=decision.version,
    )


def task_to_pb(task: Task) -> task_pb2.Task:
    return task_pb2.Task(
        id=task.id,
        task=task.task,
        arguments={name: _argument_to_pb(argument) for name, argument in task.arguments.items()},
        parameters_json=task.parameters_json,
        pinned_model=task.pinned_model,
        pinned_revision=task.pinned_revision,
        source=task.source,
    )


def _argument_to_pb(argument: Argument) -> task_pb2.Argument:
    match argument:
        case Many(items):
            return task_pb2.Argument(list=task_pb2.ArgumentList(items=[_argument_to_pb(item) for item in items]))
        case Reference(task_id, output):
            return task_pb2.Argument(reference=task_pb2.Reference(task_id=task_id, output=output))
        case Input(name):
            return task_pb2.Argument(input=task_pb2.InputRef(name=name))
        case Unset():
            return task_pb2.Argument()
        case _:
            return task_pb2.Argument(value=_value_to_pb(argument))


def _value_to_pb(value: Value) -> artifact_pb2.Value:
    match value:
        case Text(text):
            return artifact_pb2.Value(text=text)
        case Json(content):
            return artifact_pb2.Value(json=content)
        case File(sha256, media_type, size_bytes, name):
            artifact = artifact_pb2.Artifact(sha256=sha256, media_type=media_type, size_bytes=size_bytes, name=name)
            return artifact_pb2.Value(artifact=artifact)
