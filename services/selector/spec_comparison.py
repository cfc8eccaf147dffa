"""Compares two specs of a task: ports must match exactly, descriptions may differ."""

from collections.abc import Iterable, Iterator

from protos.hugginggpt.v1.artifact_pb2 import Modality
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec


def spec_difference(described: TaskSpec, accepted: TaskSpec) -> str:
    """Describes the differences between ports; empty if there are none."""
    kinds = (("input", described.inputs, accepted.inputs), ("output", described.outputs, accepted.outputs))
    return "; ".join(
        text
        for kind, described_ports, accepted_ports in kinds
        for text in _differences(kind, described_ports, accepted_ports)
    )


def _differences(kind: str, described: Iterable[Port], accepted: Iterable[Port]) -> Iterator[str]:
    described_ports, accepted_ports = {port.name: port for port in described}, {port.name: port for port in accepted}
    for name in sorted(accepted_ports.keys() - described_ports.keys()):
        yield f"{kind} {name} is missing"
    for name in sorted(described_ports.keys() - accepted_ports.keys()):
        yield f"{kind} {name} is unknown"
    for name in sorted(described_ports.keys() & accepted_ports.keys()):
        actual, expected = _shape(described_ports[name]), _shape(accepted_ports[name])
        if actual != expected:
            yield f"{kind} {name} is {actual} instead of {expected}"


def _shape(port: Port) -> str:
    need = "required" if port.required else "optional"
    modality = Modality.Name(port.modality).removeprefix("MODALITY_").lower()
    return f"{need} {modality}{' list' if port.many else ''}"
