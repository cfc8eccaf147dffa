"""What protos and standard tasks promise to programs that speak them: to be kept by all later ones."""

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

from protos.hugginggpt.v1.types_pb2 import Modality, Port, TaskSpec

Promise = tuple[str, str]
"""Of what, and what it is."""


def broken(released: Mapping[str, str], today: Mapping[str, str]) -> Sequence[str]:
    """The promises that are not kept today, a sentence each."""
    wrong = (what for what, was in released.items() if today.get(what) != was)
    return [f"{what} was {released[what]}, is {today.get(what, 'gone')}" for what in wrong]


def of_protos(protos: FileDescriptorSet) -> Mapping[str, str]:
    """What programs rely on, on the wire, in JSON and in calls."""
    return dict(promise for file in protos.file for promise in _of_file(file))


def of_tasks(specs: Iterable[TaskSpec]) -> Mapping[str, str]:
    """What experts rely on that offer standard tasks: where ports differ, they are left out of the catalogue."""
    return dict(promise for spec in specs for promise in _of_task(spec))


def _of_task(spec: TaskSpec) -> Iterator[Promise]:
    yield f"task {spec.name}", "a standard one"
    yield f"what task {spec.name} takes", ", ".join(sorted(map(_port, spec.inputs)))
    yield f"what task {spec.name} gives", ", ".join(sorted(map(_port, spec.outputs)))
    for parameter in spec.parameters:
        yield f"parameter {parameter.name} of task {spec.name}", "there"


def _port(port: Port) -> str:
    need, many = "required" if port.required else "optional", "list " if port.many else ""
    return f"{port.name} ({need} {many}{Modality.Name(port.modality)})"


def _of_file(file: FileDescriptorProto) -> Iterator[Promise]:
    for message in file.message_type:
        yield from _of_message(f"{file.package}.{message.name}", message, file.syntax)
    for enum in file.enum_type:
        yield from _of_enum(f"{file.package}.{enum.name}", enum)
    for service in file.service:
        yield from _of_service(f"{file.package}.{service.name}", service)


def _of_message(name: str, message: DescriptorProto, syntax: str) -> Iterator[Promise]:
    yield name, f"a message in {syntax}"
    for field in message.field:
        yield from _of_field(f"field {field.number} of {name}", field, message)
    for nested in message.nested_type:
        yield from _of_message(f"{name}.{nested.name}", nested, syntax)
    for enum in message.enum_type:
        yield from _of_enum(f"{name}.{enum.name}", enum)


def _of_field(name: str, field: FieldDescriptorProto, message: DescriptorProto) -> Iterator[Promise]:
    label, kind = FieldDescriptorProto.Label.Name(field.label), FieldDescriptorProto.Type.Name(field.type)
    yield name, field.name
    yield f"the JSON name of {name}", field.json_name
    yield f"the type of {name}", f"{label} {kind} {field.type_name}".strip()
    if field.HasField("oneof_index"):
        yield f"the alternative with {name}", message.oneof_decl[field.oneof_index].name
    else:
        yield f"the alternative with {name}", "none"


def _of_enum(name: str, enum: EnumDescriptorProto) -> Iterator[Promise]:
    yield name, "an enum"
    for value in enum.value:
        yield f"the number of {name}.{value.name}", str(value.number)


def _of_service(name: str, service: ServiceDescriptorProto) -> Iterator[Promise]:
    yield name, "a service"
    for method in service.method:
        yield f"{name}.{method.name}", _call(method)


def _call(method: MethodDescriptorProto) -> str:
    taken = f"{'a stream of ' if method.client_streaming else ''}{method.input_type}"
    given = f"{'a stream of ' if method.server_streaming else ''}{method.output_type}"
    return f"a call that takes {taken} and gives {given}"
