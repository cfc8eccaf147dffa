"""Resolves a task's arguments to the request of its expert call, with its seed and digest."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping

from protos.hugginggpt.v1.artifact_pb2 import Value, ValueList
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.task_pb2 import Argument, Task, TaskSpec
from services.common.errors import InvalidRequest

SEED = "seed"
"""Name of the parameter that makes a random task repeatable."""

_SEED_BITS = 53
"""Bits that a JSON number holds exactly in every implementation."""


def dependencies(task: Task) -> set[int]:
    """IDs of the tasks whose outputs a task refers to."""
    return {argument.reference.task_id for argument in _flat(task) if argument.HasField("reference")}


def final_tasks(tasks: Iterable[Task]) -> frozenset[int]:
    """IDs of the tasks that no other task depends on."""
    listed = list(tasks)
    return frozenset(task.id for task in listed) - {each for task in listed for each in dependencies(task)}


def output_name(final: frozenset[int], task_id: int, output: str) -> str:
    """Name of an output among those of all final tasks."""
    return output if len(final) == 1 else f"task{task_id}.{output}"


def resolve_arguments(task: Task, inputs: Mapping[str, Value], results: Mapping[int, TaskResult]) -> InferRequest:
    """Builds the call of a task, without model and call ID.

    Args:
        task: the task.
        inputs: the run's inputs by name.
        results: of the tasks it depends on; none has a failure.

    Raises:
        InvalidRequest: an argument refers to an input or output that does not exist; port is its name.
    """
    request = InferRequest(task=task.task, parameters_json=task.parameters_json)
    for port, argument in sorted(task.arguments.items()):
        if argument.HasField("list"):
            values = [_value(port, item, inputs, results) for item in argument.list.items]
            request.lists[port].CopyFrom(ValueList(values=values))
        else:
            request.inputs[port].CopyFrom(_value(port, argument, inputs, results))
    return request


def choose_seed(request: InferRequest, spec: TaskSpec, run_id: str, task_id: int) -> int:
    """The seed among the parameters, or one derived from run and task; 0 if the task has no seed parameter.

    A derived seed is the same after a retry or takeover, and so is the result.
    """
    if all(parameter.name != SEED for parameter in spec.parameters):
        return 0
    given = json.loads(request.parameters_json or "{}").get(SEED)
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << _SEED_BITS:
        return given
    drawn = hashlib.sha256(f"{run_id}/{task_id}".encode()).digest()
    return int.from_bytes(drawn[:8]) >> (64 - _SEED_BITS)


def apply_seed(request: InferRequest, seed: int) -> None:
    """Sets a seed other than 0 in the request's parameters."""
    if seed:
        parameters = {**json.loads(request.parameters_json or "{}"), SEED: seed}
        request.parameters_json = json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def input_digest(request: InferRequest) -> str:
    """SHA-256 of task, parameters and values."""
    bare = InferRequest(task=request.task, parameters_json=request.parameters_json)
    for port, value in request.inputs.items():
        bare.inputs[port].CopyFrom(_without_name(value))
    for port, values in request.lists.items():
        bare.lists[port].values.extend(_without_name(value) for value in values.values)
    return hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()


def _flat(task: Task) -> Iterator[Argument]:
    for argument in task.arguments.values():
        if argument.HasField("list"):
            yield from argument.list.items
        else:
            yield argument


def _value(port: str, argument: Argument, inputs: Mapping[str, Value], results: Mapping[int, TaskResult]) -> Value:
    if argument.HasField("value"):
        return argument.value
    if argument.HasField("input"):
        if argument.input.name in inputs:
            return inputs[argument.input.name]
        raise InvalidRequest(
            f"the run has no input {argument.input.name}",
            port=port,
            remedy=f"use one of its inputs: {', '.join(inputs) or 'none'}",
        )
    if not argument.HasField("reference"):
        raise InvalidRequest("an argument is empty, or a list within a list", port=port, remedy="give it a value")
    reference = argument.reference
    outputs = results[reference.task_id].outputs
    if reference.output in outputs:
        return outputs[reference.output]
    raise InvalidRequest(
        f"task {reference.task_id} has no output {reference.output}",
        port=port,
        remedy=f"choose another model, or use one of its outputs: {', '.join(sorted(outputs)) or 'none'}",
    )


def _without_name(value: Value) -> Value:
    """The value without an artifact's name, which does not change the result."""
    copy = Value()
    copy.CopyFrom(value)
    if copy.HasField("artifact"):
        copy.artifact.name = ""
    return copy
