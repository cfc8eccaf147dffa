"""Argument values of a task in a run that has ended."""

from collections.abc import Iterator, Mapping, Sequence

from gateway.provenance.run_account import Account
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.task_pb2 import Argument, Task


def flat(task: Task) -> Iterator[tuple[str, Argument]]:
    """Yields the arguments by port; each element of a list separately."""
    for port in sorted(task.arguments):
        argument = task.arguments[port]
        for item in argument.list.items if argument.HasField("list") else (argument,):
            yield port, item


def value_of(argument: Argument, account: Account) -> Value | None:
    """Value of an argument; None if it refers to a value that does not exist."""
    match argument.WhichOneof("kind"):
        case "value":
            return argument.value
        case "input":
            return next((each.value for each in account.run.spec.inputs if each.name == argument.input.name), None)
        case "reference":
            needed = account.tasks.get(argument.reference.task_id)
            outputs: Mapping[str, Value] = needed.result.outputs if needed else {}
            return outputs.get(argument.reference.output)
    return None


def values_of(task: Task, account: Account) -> Sequence[tuple[str, Value | None]]:
    return [(port, value_of(argument, account)) for port, argument in flat(task)]
