"""What the rivals send to the scripted cast: the same as an orchestrator does, less what nobody reads."""

from collections.abc import Mapping, Sequence

from protos.hugginggpt.internal.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.internal.v1.responder_pb2 import RespondRequest
from protos.hugginggpt.internal.v1.selector_pb2 import SelectRequest
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.run_pb2 import Turn
from protos.hugginggpt.v1.task_pb2 import Task


def plan(words: str) -> PlanRequest:
    return PlanRequest(conversation=[Turn(text=words)])


def select(task: Task, words: str) -> SelectRequest:
    return SelectRequest(task=task, request=words)


def infer(task: Task, model: str, given: Mapping[int, Value]) -> InferRequest:
    """A call of a task's model.

    Args:
        task: with arguments that are values, or refer to earlier tasks.
        model: its id.
        given: the output of each task it needs.
    """
    inputs = {
        name: given[argument.reference.task_id] if argument.HasField("reference") else argument.value
        for name, argument in task.arguments.items()
    }
    return InferRequest(task=task.task, model=model, inputs=inputs)


def respond(words: str) -> RespondRequest:
    return RespondRequest(conversation=[Turn(text=words)])


def needs(task: Task) -> Sequence[int]:
    """The tasks it refers to."""
    return [each.reference.task_id for each in task.arguments.values() if each.HasField("reference")]
