"""Requests of the compared programs to the scripted services: those of an orchestrator, without unused fields."""

from collections.abc import Mapping, Sequence

from protos.hugginggpt.internal.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.internal.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.internal.v1.selector_pb2 import SelectRequest
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.run_pb2 import Turn
from protos.hugginggpt.v1.task_pb2 import Task


def plan(request: str) -> PlanRequest:
    return PlanRequest(conversation=[Turn(text=request)])


def select(task: Task, request: str) -> SelectRequest:
    return SelectRequest(task=task, request=request)


def infer(task: Task, model: str, outputs: Mapping[int, Value]) -> InferRequest:
    """A call of a task's model.

    Args:
        task: whose arguments are values or references to earlier tasks.
        model: its id.
        outputs: of the referenced tasks, by id.
    """
    inputs = {
        name: outputs[argument.reference.task_id] if argument.HasField("reference") else argument.value
        for name, argument in task.arguments.items()
    }
    return InferRequest(task=task.task, model=model, inputs=inputs)


def respond(request: str) -> RespondRequest:
    return RespondRequest(conversation=[Turn(text=request)])


def needs(task: Task) -> Sequence[int]:
    """Ids of the tasks that a task refers to."""
    return [each.reference.task_id for each in task.arguments.values() if each.HasField("reference")]
