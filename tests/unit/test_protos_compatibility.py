"""Compatibility checks find every incompatible change of protos and standard tasks, and accept additions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from protos import compatibility
from protos.generate import compile_protos
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_TEXT
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec

PACKAGE = "hugginggpt.v1"


@pytest.fixture(scope="module")
def released() -> FileDescriptorSet:
    """Replaces the protos of a release."""
    with TemporaryDirectory() as folder:
        compiled = Path(folder) / "protos.binpb"
        compile_protos("--include_imports", f"--descriptor_set_out={compiled}")
        return FileDescriptorSet.FromString(compiled.read_bytes())


def file(protos: FileDescriptorSet, name: str) -> FileDescriptorProto:
    return next(each for each in protos.file if each.name.endswith(f"/{name}.proto"))


def message(protos: FileDescriptorSet, name: str) -> DescriptorProto:
    return next(each for proto in protos.file for each in proto.message_type if each.name == name)


def field(protos: FileDescriptorSet, number: int) -> FieldDescriptorProto:
    return next(each for each in message(protos, "Task").field if each.number == number)


def remove_a_field(protos: FileDescriptorSet) -> None:
    message(protos, "Task").field.remove(field(protos, 2))


def renumber_a_field(protos: FileDescriptorSet) -> None:
    field(protos, 2).number = 99


def rename_a_field(protos: FileDescriptorSet) -> None:
    field(protos, 2).name = "kind"


def rename_a_field_in_json(protos: FileDescriptorSet) -> None:
    field(protos, 2).json_name = "kind"


def retype_a_field(protos: FileDescriptorSet) -> None:
    field(protos, 1).type = FieldDescriptorProto.TYPE_STRING


def retype_a_message_field(protos: FileDescriptorSet) -> None:
    message(protos, "NamedValue").field[1].type_name = f".{PACKAGE}.Artifact"


def repeat_a_field(protos: FileDescriptorSet) -> None:
    field(protos, 2).label = FieldDescriptorProto.LABEL_REPEATED


def retype_a_map(protos: FileDescriptorSet) -> None:
    (entry,) = message(protos, "Task").nested_type
    entry.field[1].type_name = f".{PACKAGE}.Value"


def take_a_field_out_of_its_oneof(protos: FileDescriptorSet) -> None:
    message(protos, "Value").field[0].ClearField("oneof_index")


def move_a_field_into_a_oneof(protos: FileDescriptorSet) -> None:
    moved = message(protos, "Task")
    moved.oneof_decl.add(name="either")
    field(protos, 2).oneof_index = 0


def remove_a_message(protos: FileDescriptorSet) -> None:
    file(protos, "task").message_type.remove(message(protos, "Reference"))


def change_the_syntax(protos: FileDescriptorSet) -> None:
    file(protos, "task").syntax = "proto2"


def remove_an_enum_value(protos: FileDescriptorSet) -> None:
    del file(protos, "artifact").enum_type[0].value[2]


def renumber_an_enum_value(protos: FileDescriptorSet) -> None:
    file(protos, "artifact").enum_type[0].value[2].number = 99


def rename_an_enum_value(protos: FileDescriptorSet) -> None:
    file(protos, "artifact").enum_type[0].value[2].name = "MODALITY_PICTURE"


def remove_an_enum(protos: FileDescriptorSet) -> None:
    del file(protos, "artifact").enum_type[0]


def remove_a_service(protos: FileDescriptorSet) -> None:
    del file(protos, "expert").service[0]


def remove_a_call(protos: FileDescriptorSet) -> None:
    del file(protos, "expert").service[0].method[-1]


def stream_an_answer(protos: FileDescriptorSet) -> None:
    file(protos, "expert").service[0].method[0].server_streaming = True


def stream_a_question(protos: FileDescriptorSet) -> None:
    file(protos, "expert").service[0].method[0].client_streaming = True


def take_another_message(protos: FileDescriptorSet) -> None:
    file(protos, "expert").service[0].method[0].input_type = f".{PACKAGE}.DescribeRequest"


def rename_the_package(protos: FileDescriptorSet) -> None:
    file(protos, "expert").package = "hugginggpt.v2"


Change = Callable[[FileDescriptorSet], None]


def broken(released: FileDescriptorSet, change: Change) -> Sequence[str]:
    changed = FileDescriptorSet()
    changed.CopyFrom(released)
    change(changed)
    return compatibility.broken(compatibility.of_protos(released), compatibility.of_protos(changed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_a_field, f"field 2 of {PACKAGE}.Task was task, is removed"),
        (renumber_a_field, f"field 2 of {PACKAGE}.Task was task, is removed"),
        (rename_a_field, f"field 2 of {PACKAGE}.Task was task, is kind"),
        (rename_a_field_in_json, f"the JSON name of field 2 of {PACKAGE}.Task was task, is kind"),
        (retype_a_field, "LABEL_OPTIONAL TYPE_INT32, is LABEL_OPTIONAL TYPE_STRING"),
        (retype_a_message_field, f".{PACKAGE}.Value, is LABEL_OPTIONAL TYPE_MESSAGE .{PACKAGE}.Artifact"),
        (repeat_a_field, "LABEL_OPTIONAL TYPE_STRING, is LABEL_REPEATED TYPE_STRING"),
        (retype_a_map, f"the type of field 2 of {PACKAGE}.Task.ArgumentsEntry"),
        (take_a_field_out_of_its_oneof, f"the oneof of field 1 of {PACKAGE}.Value was kind, is none"),
        (move_a_field_into_a_oneof, f"the oneof of field 2 of {PACKAGE}.Task was none, is either"),
        (remove_a_message, f"{PACKAGE}.Reference was a message in proto3, is removed"),
        (change_the_syntax, f"{PACKAGE}.Reference was a message in proto3, is a message in proto2"),
        (remove_an_enum_value, f"the number of {PACKAGE}.Modality.MODALITY_IMAGE was 2, is removed"),
        (renumber_an_enum_value, f"the number of {PACKAGE}.Modality.MODALITY_IMAGE was 2, is 99"),
        (rename_an_enum_value, f"the number of {PACKAGE}.Modality.MODALITY_IMAGE was 2, is removed"),
        (remove_an_enum, f"{PACKAGE}.Modality was an enum, is removed"),
        (remove_a_service, f"{PACKAGE}.ExpertService was a service, is removed"),
        (remove_a_call, f"{PACKAGE}.ExpertService.Progress was an RPC that takes"),
        (stream_an_answer, f"and returns a stream of .{PACKAGE}.InferResponse"),
        (stream_a_question, f"is an RPC that takes a stream of .{PACKAGE}.InferRequest"),
        (take_another_message, f"is an RPC that takes .{PACKAGE}.DescribeRequest"),
        (rename_the_package, f"{PACKAGE}.ExpertService was a service, is removed"),
    ],
)
def test_incompatible_change_is_found(released: FileDescriptorSet, change: Change, message: str) -> None:
    assert message in "\n".join(broken(released, change))


def add_everywhere(protos: FileDescriptorSet) -> None:
    artifact = file(protos, "artifact")
    message(protos, "Task").field.add(name="more", json_name="more", number=99, type=FieldDescriptorProto.TYPE_BOOL)
    alternative = message(protos, "Value").field.add(name="more", json_name="more", number=99)
    alternative.type, alternative.oneof_index = FieldDescriptorProto.TYPE_BOOL, 0
    artifact.message_type.add(name="More")
    artifact.enum_type[0].value.add(name="MODALITY_OTHER", number=99)
    file(protos, "expert").service[0].method.add(name="More", input_type=".a.B", output_type=".a.C")


def test_additions_are_compatible(released: FileDescriptorSet) -> None:
    assert broken(released, add_everywhere) == []


# ---------------------------------------------------------------- standard tasks

SAYING = TaskSpec(name="saying", inputs=[Port(name="text", modality=MODALITY_TEXT, required=True)])


def broken_by(**changes: object) -> Sequence[str]:
    changed = TaskSpec(name="saying", inputs=[Port(name="text", modality=MODALITY_TEXT, required=True)])
    for name, value in changes.items():
        setattr(changed.inputs[0], name, value)
    return compatibility.broken(compatibility.of_tasks([SAYING]), compatibility.of_tasks([changed]))


def test_changed_port_of_standard_task_is_found() -> None:
    (found,) = broken_by(required=False)
    assert found == "the inputs of task saying was text (required MODALITY_TEXT), is text (optional MODALITY_TEXT)"
    assert broken_by(name="words") != []
    assert broken_by(many=True) != []
    assert broken_by(description="another description") == []


def test_added_port_of_standard_task_is_found() -> None:
    more = TaskSpec(name="saying", inputs=[*SAYING.inputs, Port(name="tone", modality=MODALITY_TEXT)])
    assert len(compatibility.broken(compatibility.of_tasks([SAYING]), compatibility.of_tasks([more]))) == 1


def test_removed_standard_task_is_found() -> None:
    assert "task saying was a standard task, is removed" in compatibility.broken(compatibility.of_tasks([SAYING]), {})
