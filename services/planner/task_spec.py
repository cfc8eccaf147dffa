"""Task specs: ports, parameters, and the catalogue of available tasks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import artifact_pb2, task_pb2


class Modality(StrEnum):
    """Modality of a port; the names are those of the protobuf enum."""

    UNSPECIFIED = "anything"
    TEXT = "text"
    IMAGE = "picture"
    AUDIO = "recording"
    VIDEO = "video"
    TABLE = "table"
    JSON = "JSON"


_MODALITIES: Mapping[int, Modality] = {
    artifact_pb2.Modality.Value(f"MODALITY_{modality.name}"): modality for modality in Modality
}


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    modality: Modality
    required: bool = True
    many: bool = False
    description: str = ""

    @classmethod
    def from_proto(cls, port: task_pb2.Port) -> Self:
        modality = _MODALITIES.get(port.modality, Modality.UNSPECIFIED)
        return cls(port.name, modality, required=port.required, many=port.many, description=port.description)


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    json_schema: str = "{}"
    description: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """Specification of a task."""

    name: str
    description: str = ""
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    examples: tuple[str, ...] = ()

    @classmethod
    def from_proto(cls, spec: task_pb2.TaskSpec) -> Self:
        return cls(
            name=spec.name,
            description=spec.description,
            inputs=tuple(map(Port.from_proto, spec.inputs)),
            outputs=tuple(map(Port.from_proto, spec.outputs)),
            parameters=tuple(Parameter(each.name, each.json_schema, each.description) for each in spec.parameters),
            examples=tuple(spec.examples),
        )

    def output(self, name: str) -> Port | None:
        return next((port for port in self.outputs if port.name == name), None)

    def takes(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.parameters)


Catalogue = Mapping[str, Spec]
"""Available tasks by name."""


class OfferedTasks(dict[str, Spec]):
    """A catalogue that also contains the offered tasks whose models all fail.

    Args:
        specs: available tasks.
        failing: names of the other offered tasks, with the experts that offer them.
    """

    def __init__(self, specs: Iterable[Spec], failing: Mapping[str, Sequence[str]]) -> None:
        super().__init__((spec.name, spec) for spec in specs)
        self.failing = failing


def failing_experts(catalogue: Catalogue, task: str) -> Sequence[str]:
    """Returns the experts that offer a task whose models have all failed."""
    return catalogue.failing.get(task, ()) if isinstance(catalogue, OfferedTasks) else ()


def standard_specs() -> Catalogue:
    """Returns the standard tasks, whether they are offered or not."""
    return {name: Spec.from_proto(spec) for name, spec in standard_tasks().items()}
