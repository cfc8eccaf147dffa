"""What a plan takes and gives: its named inputs as typed parameters, and whether values fit them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from protos.hugginggpt.v1.artifact_pb2 import (
    MODALITY_AUDIO,
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TABLE,
    MODALITY_TEXT,
    MODALITY_VIDEO,
    Artifact,
    Modality,
    NamedValue,
    Value,
)
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Argument, Port, Task, TaskSpec
from services.common.errors import InvalidRequest
from services.common.media_types import modality_names
from services.orchestrator.runs.arguments import is_too_long, needs

_A = {
    MODALITY_TEXT: "a text",
    MODALITY_IMAGE: "a picture",
    MODALITY_AUDIO: "a recording",
    MODALITY_VIDEO: "a video",
    MODALITY_TABLE: "a table",
    MODALITY_JSON: "JSON",
}
_NUMBERED = re.compile(r"file[0-9]+")
"""What a gateway calls files that came without a name."""

_SAMPLE_TYPES = {
    MODALITY_IMAGE: "image/png",
    MODALITY_AUDIO: "audio/wav",
    MODALITY_VIDEO: "video/mp4",
    MODALITY_TABLE: "text/csv",
}


def parameters(plan: Plan, specs: Mapping[str, TaskSpec]) -> list[Port]:
    """The named inputs to which a plan's tasks refer, in the order in which they do, as the ports take them.

    Args:
        plan: its tasks.
        specs: of the kinds of task that are known.

    Raises:
        InvalidRequest: two ports take one input as different things.
    """
    found: dict[str, Port] = {}
    for task in plan.tasks:
        ports = {port.name: port for port in specs[task.task].inputs} if task.task in specs else {}
        for name, argument in sorted(task.arguments.items()):
            for given in _flat(argument):
                if given.HasField("input"):
                    _join(found, given.input.name, ports.get(name), task)
    return list(found.values())


def inputs_of(task: Task) -> set[str]:
    """The names of the inputs to which a task refers."""
    given = (each for argument in task.arguments.values() for each in _flat(argument))
    return {each.input.name for each in given if each.HasField("input")}


def results(plan: Plan, specs: Mapping[str, TaskSpec]) -> list[Port]:
    """What a plan gives, under the names of outcome()."""
    last = ends(plan.tasks)
    return [
        Port(
            name=output_name(last, task.id, port.name),
            modality=port.modality,
            required=port.required,
            many=port.many,
            description=port.description,
        )
        for task in plan.tasks
        if task.id in last
        for port in specs[task.task].outputs
    ]


def ends(tasks: Iterable[Task]) -> frozenset[int]:
    """Ids of the tasks that no other one needs."""
    listed = list(tasks)
    return frozenset(task.id for task in listed) - {need for task in listed for need in needs(task)}


def output_name(last: frozenset[int], task_id: int, output: str) -> str:
    """What an output is called among those of all ends."""
    return output if len(last) == 1 else f"task{task_id}.{output}"


def samples(ports: Iterable[Port]) -> Iterator[NamedValue]:
    """Values that fit, for checking a plan without any."""
    for port in ports:
        if media_type := _SAMPLE_TYPES.get(port.modality):
            yield NamedValue(name=port.name, value=Value(artifact=Artifact(media_type=media_type)))
        elif port.modality == MODALITY_JSON:
            yield NamedValue(name=port.name, value=Value(json="{}"))
        else:
            yield NamedValue(name=port.name, value=Value(text=port.name))


def place(ports: Sequence[Port], inputs: Iterable[NamedValue]) -> None:
    """Gives files that are only numbered the names of free parameters that they fit, in order, required ones first."""
    names, listed = {port.name for port in ports}, list(inputs)
    given = {item.name for item in listed}
    free = sorted((port for port in ports if port.name not in given), key=lambda port: not port.required)
    for item in listed:
        if item.name in names or not _NUMBERED.fullmatch(item.name):
            continue
        if fitting := next((port for port in free if port.modality in _modalities(item.value)), None):
            item.name = fitting.name
            free.remove(fitting)


def check(ports: Sequence[Port], inputs: Sequence[NamedValue]) -> None:
    """Holds what is given against what is taken.

    Raises:
        InvalidRequest: one is missing, unknown, given twice, too long, or of another kind; port is its name.
    """
    taken = {port.name: port for port in ports}
    seen: set[str] = set()
    for item in inputs:
        if item.name in seen:
            raise InvalidRequest(f"input {item.name} is given twice", port=item.name, remedy="give it once")
        seen.add(item.name)
        if item.name not in taken:
            remedy = f"it takes {', '.join(taken) or 'none'}"
            raise InvalidRequest(f"the plan takes no input {item.name or '(unnamed)'}", port=item.name, remedy=remedy)
        _check(taken[item.name], item.value)
    for port in ports:
        if port.required and port.name not in seen:
            raise InvalidRequest(f"input {port.name} is missing", port=port.name, remedy=f"give it {_a(port.modality)}")


def _check(port: Port, value: Value) -> None:
    fitting = _modalities(value)
    if port.modality not in fitting:
        is_ = " or ".join(map(_a, fitting)) or "nothing of a known kind"
        raise InvalidRequest(
            f"input {port.name} is {is_}; the plan takes {_a(port.modality)} there",
            port=port.name,
            remedy=f"give it {_a(port.modality)}",
        )
    if is_too_long(value):
        raise InvalidRequest(
            f"{port.name} has {value.ByteSize() // 1024} KiB inline, where more than 256 are to be an artifact",
            reason="TOO_LARGE",
            remedy="send it as a file, and name the artifact",
            port=port.name,
        )


def _modalities(value: Value) -> "Sequence[Modality.ValueType]":
    """What a value can be taken as; a PDF is taken wherever a picture is."""
    kind = value.WhichOneof("kind")
    if kind == "text":
        return (MODALITY_TEXT,)
    if kind == "json":
        return (MODALITY_JSON,) if _is_json(value.json) else ()
    return [Modality.Value(f"MODALITY_{name}") for name in modality_names(value.artifact.media_type)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _join(found: dict[str, Port], name: str, port: Port | None, task: Task) -> None:
    """Takes one more use of an input into account."""
    if port is None:  # the check of the plan complains about it
        found.setdefault(name, Port(name=name, modality=MODALITY_TEXT, required=True))
        return
    known = found.setdefault(name, Port(name=name, modality=port.modality, description=port.description))
    known.required = known.required or port.required
    if known.modality != port.modality:
        raise InvalidRequest(
            f"input {name} is taken as {_a(known.modality)}, and by task {task.id} as {_a(port.modality)}",
            port=name,
            remedy="give the plan two inputs",
        )


def _flat(argument: Argument) -> Iterable[Argument]:
    return argument.list.items if argument.HasField("list") else (argument,)


def _a(modality: "Modality.ValueType") -> str:
    return _A.get(modality, "something")
