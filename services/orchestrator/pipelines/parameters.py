"""Typed parameters and outputs of a plan, and validation of inputs against them."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from protos.hugginggpt.v1.artifact_pb2 import (
    MODALITY_AUDIO,
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TABLE,
    MODALITY_TEXT,
    MODALITY_UNSPECIFIED,
    MODALITY_VIDEO,
    Artifact,
    Modality,
    NamedValue,
    Value,
)
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Argument, Port, Task, TaskSpec
from services.common.errors import InvalidRequest
from services.common.media_types import modality_names
from services.orchestrator.inline_values import is_json, is_too_large
from services.orchestrator.runs.arguments import final_tasks, output_name

_DESCRIPTIONS = {
    MODALITY_TEXT: "a text",
    MODALITY_IMAGE: "an image",
    MODALITY_AUDIO: "a recording",
    MODALITY_VIDEO: "a video",
    MODALITY_TABLE: "a table",
    MODALITY_JSON: "JSON",
}
_NUMBERED = re.compile(r"file[0-9]+")
"""Names that the gateway gives to files without a name."""

_SAMPLE_TYPES = {
    MODALITY_IMAGE: "image/png",
    MODALITY_AUDIO: "audio/wav",
    MODALITY_VIDEO: "video/mp4",
    MODALITY_TABLE: "text/csv",
}


def derive_inputs(plan: Plan, specs: Mapping[str, TaskSpec]) -> list[Port]:
    """The named inputs that a plan's tasks refer to, in order of reference, typed by the ports that take them.

    Args:
        plan: its tasks.
        specs: of the known tasks.

    Raises:
        InvalidRequest: an input is used with two modalities.
    """
    found: dict[str, Port] = {}
    for task in plan.tasks:
        ports = {port.name: port for port in specs[task.task].inputs} if task.task in specs else {}
        for name, argument in sorted(task.arguments.items()):
            for each in _flat(argument):
                if each.HasField("input"):
                    _add_use(found, each.input.name, ports.get(name), task)
    return list(found.values())


def derive_outputs(plan: Plan, specs: Mapping[str, TaskSpec]) -> list[Port]:
    """The outputs of a plan's final tasks, named by output_name()."""
    last = final_tasks(plan.tasks)
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


def sample_inputs(ports: Iterable[Port]) -> Iterator[NamedValue]:
    """Valid values, for checking a plan without inputs."""
    for port in ports:
        if media_type := _SAMPLE_TYPES.get(port.modality):
            yield NamedValue(name=port.name, value=Value(artifact=Artifact(media_type=media_type)))
        elif port.modality == MODALITY_JSON:
            yield NamedValue(name=port.name, value=Value(json="{}"))
        else:
            yield NamedValue(name=port.name, value=Value(text=port.name))


def add_descriptions(pipeline: Pipeline, declared: Collection[Port]) -> None:
    """Adds the caller's descriptions of inputs to a pipeline.

    Raises:
        InvalidRequest: the caller declares an input that no task uses, or with another modality; port is its name.
    """
    inputs = {port.name: port for port in pipeline.inputs}
    for port in declared:
        if port.name not in inputs:
            raise _unused(pipeline.plan, port.name, [each.name for each in declared], inputs)
        if port.modality not in {MODALITY_UNSPECIFIED, inputs[port.name].modality}:
            message = f"the modality of input {port.name} is not that of the tasks that use it"
            raise InvalidRequest(message, port=port.name, remedy="leave its modality unspecified")
        inputs[port.name].description = port.description or inputs[port.name].description


def assign_files(ports: Sequence[Port], inputs: Iterable[NamedValue]) -> None:
    """Renames files without a name to free parameters of their modality, in order, required ones first."""
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
    """Checks inputs against the parameters of a plan.

    Raises:
        InvalidRequest: one is missing, unknown, repeated, too large, or of another modality; port is its name.
    """
    declared = {port.name: port for port in ports}
    seen: set[str] = set()
    for item in inputs:
        if item.name in seen:
            raise InvalidRequest(f"input {item.name} is given twice", port=item.name, remedy="send it once")
        seen.add(item.name)
        if item.name not in declared:
            message = f"the plan has no input {item.name or '(unnamed)'}"
            raise InvalidRequest(message, port=item.name, remedy=f"its inputs are {', '.join(declared) or 'none'}")
        _check(declared[item.name], item.value)
    for port in ports:
        if port.required and port.name not in seen:
            raise InvalidRequest(
                f"input {port.name} is missing", port=port.name, remedy=f"send {_described(port.modality)}"
            )


def _unused(plan: Plan, name: str, declared: Collection[str], inputs: Collection[str]) -> InvalidRequest:
    """The error for a declared input that no task uses; names a similar one that a task uses but is not declared."""
    if similar := get_close_matches(name, [each for each in inputs if each not in declared], n=1, cutoff=0):
        task = next(task.id for task in plan.tasks if similar[0] in _input_names(task))
        message = f"task {task} uses {similar[0]}, which is not among the inputs ({', '.join(declared)})"
        return InvalidRequest(message, port=name, remedy="use the same name in both")
    message = f"no task uses the input {name}"
    return InvalidRequest(message, port=name, remedy=f"the plan's inputs are {', '.join(inputs) or 'none'}")


def _input_names(task: Task) -> set[str]:
    """Names of the inputs that a task refers to."""
    arguments = (each for argument in task.arguments.values() for each in _flat(argument))
    return {each.input.name for each in arguments if each.HasField("input")}


def _check(port: Port, value: Value) -> None:
    fitting = _modalities(value)
    if port.modality not in fitting:
        actual = " or ".join(map(_described, fitting)) or "of an unknown kind"
        expected = _described(port.modality)
        raise InvalidRequest(
            f"input {port.name} is {actual}, but the plan takes {expected}",
            port=port.name,
            remedy=f"send {expected}",
        )
    if is_too_large(value):
        raise InvalidRequest(
            f"{port.name} has {value.ByteSize() // 1024} KiB inline; values above 256 KiB must be artifacts",
            reason="TOO_LARGE",
            remedy="upload it as a file and reference the artifact",
            port=port.name,
        )


def _modalities(value: Value) -> "Sequence[Modality.ValueType]":
    """Modalities of ports that accept a value; image ports accept PDF."""
    kind = value.WhichOneof("kind")
    if kind == "text":
        return (MODALITY_TEXT,)
    if kind == "json":
        return (MODALITY_JSON,) if is_json(value.json) else ()
    return [Modality.Value(f"MODALITY_{name}") for name in modality_names(value.artifact.media_type)]


def _add_use(found: dict[str, Port], name: str, port: Port | None, task: Task) -> None:
    """Adds one use of an input to the parameters."""
    if port is None:  # the check of the plan reports the error
        found.setdefault(name, Port(name=name, modality=MODALITY_TEXT, required=True))
        return
    known = found.setdefault(name, Port(name=name, modality=port.modality, description=port.description))
    known.required = known.required or port.required
    if known.modality != port.modality:
        before, here = _described(known.modality), _described(port.modality)
        message = f"input {name} is {before} in an earlier task, but {here} in task {task.id}"
        raise InvalidRequest(message, port=name, remedy="use two inputs")


def _flat(argument: Argument) -> Iterable[Argument]:
    return argument.list.items if argument.HasField("list") else (argument,)


def _described(modality: "Modality.ValueType") -> str:
    return _DESCRIPTIONS.get(modality, "a value of another kind")
