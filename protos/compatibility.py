"""Compatibility of protos and standard tasks between releases: lists what a change would break for existing programs.

The first release stores its descriptors as the baseline; until then nothing is compared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from protos.hugginggpt.v1.artifact_pb2 import Modality
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec

Guarantee = tuple[str, str]
"""An element that programs rely on, such as a field, and its definition."""


def broken(released: Mapping[str, str], current: Mapping[str, str]) -> Sequence[str]:
    """Guarantees of a release that no longer hold, one sentence each."""
    changed = (element for element, was in released.items() if current.get(element) != was)
    return [f"{element} was {released[element]}, is {current.get(element, 'removed')}" for element in changed]


def of_protos(protos: FileDescriptorSet) -> Mapping[str, str]:
    """What programs rely on: the wire format, JSON names and the signatures of RPCs."""
    return dict(guarantee for file in protos.file for guarantee in _of_file(file))


def of_tasks(specs: Iterable[TaskSpec]) -> Mapping[str, str]:
    """What experts rely on: the ports of standard tasks. An expert with other ports is left out of the catalogue."""
    return dict(guarantee for spec in specs for guarantee in _of_task(spec))


def _of_task(spec: TaskSpec) -> Iterator[Guarantee]:
    yield f"task {spec.name}", "a standard task"
    yield f"the inputs of task {spec.name}", ", ".join(sorted(map(_port, spec.inputs)))
    yield f"the outputs of task {spec.name}", ", ".join(sorted(map(_port, spec.outputs)))
    for parameter in spec.parameters:
        yield f"parameter {parameter.name} of task {spec.name}", "present"


def _port(port: Port) -> str:
    need, many = "required" if port.required else "optional", "list " if port.many else ""
    return f"{port.name} ({need} {many}{Modality.Name(port.modality)})"


def _of_file(file: FileDescriptorProto) -> Iterator[Guarantee]:
    for message in file.message_type:
        yield from _of_message(f"{file.package}.{message.name}", message, file.syntax)
    for enum in file.enum_type:
        yield from _of_enum(f"{file.package}.{enum.name}", enum)
    for service in file.service:
        yield from _of_service(f"{file.package}.{service.name}", service)


def _of_message(name: str, message: DescriptorProto, syntax: str) -> Iterator[Guarantee]:
    yield name, f"a message in {syntax}"
    for field in message.field:
        yield from _of_field(f"field {field.number} of {name}", field, message)
    for nested in message.nested_type:
        yield from _of_message(f"{name}.{nested.name}", nested, syntax)
    for enum in message.enum_type:
        yield from _of_enum(f"{name}.{enum.name}", enum)


def _of_field(name: str, field: FieldDescriptorProto, message: DescriptorProto) -> Iterator[Guarantee]:
    label, kind = FieldDescriptorProto.Label.Name(field.label), FieldDescriptorProto.Type.Name(field.type)
    yield name, field.name
    yield f"the JSON name of {name}", field.json_name
    yield f"the type of {name}", f"{label} {kind} {field.type_name}".strip()
    if field.HasField("oneof_index"):
        yield f"the oneof of {name}", message.oneof_decl[field.oneof_index].name
    else:
        yield f"the oneof of {name}", "none"


def _of_enum(name: str, enum: EnumDescriptorProto) -> Iterator[Guarantee]:
    yield name, "an enum"
    for value in enum.value:
        yield f"the number of {name}.{value.name}", str(value.number)


def _of_service(name: str, service: ServiceDescriptorProto) -> Iterator[Guarantee]:
    yield name, "a service"
    for method in service.method:
        yield f"{name}.{method.name}", _signature(method)


def _signature(method: MethodDescriptorProto) -> str:
    request = f"{'a stream of ' if method.client_streaming else ''}{method.input_type}"
    response = f"{'a stream of ' if method.server_streaming else ''}{method.output_type}"
    return f"an RPC that takes {request} and returns {response}"
