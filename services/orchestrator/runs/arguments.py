"""From a task's arguments to the values an expert is called with, and the digest that stands for them."""

import hashlib
from collections.abc import Iterator, Mapping

from protos.hugginggpt.v1.artifact_pb2 import Value, ValueList
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from services.common.artifacts import INLINE_BYTES
from services.common.errors import InvalidRequest

_FRAMING_BYTES = 4
"""What a message adds to its one field of INLINE_BYTES."""


def needs(task: Task) -> set[int]:
    """Ids of the tasks it refers to."""
    return {argument.reference.task_id for argument in _flat(task) if argument.HasField("reference")}


def resolved(task: Task, inputs: Mapping[str, Value], results: Mapping[int, TaskResult]) -> InferRequest:
    """The call for a task, without model and call id.

    Args:
        task: the task.
        inputs: what the run was given, by name.
        results: of the tasks it needs; none has a failure.

    Raises:
        InvalidRequest: an argument leads to nothing; names the port.
    """
    request = InferRequest(task=task.task, parameters_json=task.parameters_json)
    for port, argument in sorted(task.arguments.items()):
        if argument.HasField("list"):
            values = [_value(port, item, inputs, results) for item in argument.list.items]
            request.lists[port].CopyFrom(ValueList(values=values))
        else:
            request.inputs[port].CopyFrom(_value(port, argument, inputs, results))
    return request


def is_too_long(value: Value) -> bool:
    """Whether it should have been an artifact: what is inline is kept with every event and sent to all who watch."""
    return not value.HasField("artifact") and value.ByteSize() > INLINE_BYTES + _FRAMING_BYTES


def digest(request: InferRequest) -> str:
    """SHA-256 over task, parameters and values."""
    bare = InferRequest(task=request.task, parameters_json=request.parameters_json)
    for port, value in request.inputs.items():
        bare.inputs[port].CopyFrom(_nameless(value))
    for port, values in request.lists.items():
        bare.lists[port].values.extend(_nameless(value) for value in values.values)
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
            f"the run has no input {argument.input.name}", port=port, remedy=f"it has {', '.join(inputs) or 'none'}"
        )
    if not argument.HasField("reference"):
        raise InvalidRequest("an argument is empty, or a list within a list", port=port, remedy="give it a value")
    reference = argument.reference
    outputs = results[reference.task_id].outputs
    if reference.output in outputs:
        return outputs[reference.output]
    raise InvalidRequest(
        f"task {reference.task_id} gave no {reference.output}",
        port=port,
        remedy=f"it gave {', '.join(sorted(outputs)) or 'nothing'}; choose another model, or refer to one of these",
    )


def _nameless(value: Value) -> Value:
    """Without what does not change the result: an artifact's name."""
    copy = Value()
    copy.CopyFrom(value)
    if copy.HasField("artifact"):
        copy.artifact.name = ""
    return copy
