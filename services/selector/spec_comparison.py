"""Compares two specs of a task: ports must match exactly, descriptions may differ."""

from collections.abc import Iterable, Iterator

from protos.hugginggpt.v1.artifact_pb2 import Modality
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec


def disagreement(given: TaskSpec, settled: TaskSpec) -> str:
    """Describes the differences between ports; empty if there are none."""
    kinds = (("input", given.inputs, settled.inputs), ("output", given.outputs, settled.outputs))
    return "; ".join(text for kind, ours, theirs in kinds for text in _differences(kind, ours, theirs))


def _differences(kind: str, given: Iterable[Port], settled: Iterable[Port]) -> Iterator[str]:
    ours, theirs = {port.name: port for port in given}, {port.name: port for port in settled}
    for name in sorted(theirs.keys() - ours.keys()):
        yield f"{kind} {name} is missing"
    for name in sorted(ours.keys() - theirs.keys()):
        yield f"{kind} {name} is unknown"
    for name in sorted(ours.keys() & theirs.keys()):
        has, wants = _shape(ours[name]), _shape(theirs[name])
        if has != wants:
            yield f"{kind} {name} is {has} instead of {wants}"


def _shape(port: Port) -> str:
    need = "required" if port.required else "optional"
    modality = Modality.Name(port.modality).removeprefix("MODALITY_").lower()
    return f"{need} {modality}{' list' if port.many else ''}"
