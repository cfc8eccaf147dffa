"""What was released stays as it was: each way to break it is noticed, and additions are welcome."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from protos import promises, released
from protos.hugginggpt.tasks import read_tasks, standard_tasks
from protos.hugginggpt.v1.types_pb2 import MODALITY_TEXT, Port, TaskSpec
from protos.released import PROTOS, TASKS, released_protos, todays_protos

PACKAGE = "hugginggpt.v1"


def file(protos: FileDescriptorSet, name: str) -> FileDescriptorProto:
    return next(each for each in protos.file if each.name.endswith(f"/{name}.proto"))


def message(protos: FileDescriptorSet, name: str) -> DescriptorProto:
    return next(each for each in file(protos, "types").message_type if each.name == name)


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
    file(protos, "types").message_type.remove(message(protos, "Reference"))


def change_the_syntax(protos: FileDescriptorSet) -> None:
    file(protos, "types").syntax = "proto2"


def remove_an_enum_value(protos: FileDescriptorSet) -> None:
    del file(protos, "types").enum_type[0].value[2]


def renumber_an_enum_value(protos: FileDescriptorSet) -> None:
    file(protos, "types").enum_type[0].value[2].number = 99


def rename_an_enum_value(protos: FileDescriptorSet) -> None:
    file(protos, "types").enum_type[0].value[2].name = "MODALITY_PICTURE"


def remove_an_enum(protos: FileDescriptorSet) -> None:
    del file(protos, "types").enum_type[0]


def remove_a_service(protos: FileDescriptorSet) -> None:
    del file(protos, "expert").service[0]


def remove_a_call(protos: FileDescriptorSet) -> None:
    del file(protos, "expert").service[0].method[2]


def stream_an_answer(protos: FileDescriptorSet) -> None:
    file(protos, "expert").service[0].method[0].server_streaming = True


def stream_a_question(protos: FileDescriptorSet) -> None:
    file(protos, "expert").service[0].method[0].client_streaming = True


def take_another_message(protos: FileDescriptorSet) -> None:
    file(protos, "expert").service[0].method[0].input_type = f".{PACKAGE}.DescribeRequest"


def rename_the_package(protos: FileDescriptorSet) -> None:
    file(protos, "planner").package = "hugginggpt.v2"


Change = Callable[[FileDescriptorSet], None]


def broken(change: Change) -> Sequence[str]:
    changed = released_protos()
    change(changed)
    return promises.broken(promises.of_protos(released_protos()), promises.of_protos(changed))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (remove_a_field, f"field 2 of {PACKAGE}.Task was task, is gone"),
        (renumber_a_field, f"field 2 of {PACKAGE}.Task was task, is gone"),
        (rename_a_field, f"field 2 of {PACKAGE}.Task was task, is kind"),
        (rename_a_field_in_json, f"the JSON name of field 2 of {PACKAGE}.Task was task, is kind"),
        (retype_a_field, "LABEL_OPTIONAL TYPE_INT32, is LABEL_OPTIONAL TYPE_STRING"),
        (retype_a_message_field, f".{PACKAGE}.Value, is LABEL_OPTIONAL TYPE_MESSAGE .{PACKAGE}.Artifact"),
        (repeat_a_field, "LABEL_OPTIONAL TYPE_STRING, is LABEL_REPEATED TYPE_STRING"),
        (retype_a_map, f"the type of field 2 of {PACKAGE}.Task.ArgumentsEntry"),
        (take_a_field_out_of_its_oneof, f"the alternative with field 1 of {PACKAGE}.Value was kind, is none"),
        (move_a_field_into_a_oneof, f"the alternative with field 2 of {PACKAGE}.Task was none, is either"),
        (remove_a_message, f"{PACKAGE}.Reference was a message in proto3, is gone"),
        (change_the_syntax, f"{PACKAGE}.Reference was a message in proto3, is a message in proto2"),
        (remove_an_enum_value, f"the number of {PACKAGE}.Modality.MODALITY_IMAGE was 2, is gone"),
        (renumber_an_enum_value, f"the number of {PACKAGE}.Modality.MODALITY_IMAGE was 2, is 99"),
        (rename_an_enum_value, f"the number of {PACKAGE}.Modality.MODALITY_IMAGE was 2, is gone"),
        (remove_an_enum, f"{PACKAGE}.Modality was an enum, is gone"),
        (remove_a_service, f"{PACKAGE}.ExpertService was a service, is gone"),
        (remove_a_call, f"{PACKAGE}.ExpertService.Progress was a call that takes"),
        (stream_an_answer, f"and gives a stream of .{PACKAGE}.InferResponse"),
        (stream_a_question, f"is a call that takes a stream of .{PACKAGE}.InferRequest"),
        (take_another_message, f"is a call that takes .{PACKAGE}.DescribeRequest"),
        (rename_the_package, f"{PACKAGE}.PlannerService was a service, is gone"),
    ],
)
def test_what_programs_rely_on_cannot_go_unnoticed(change: Change, says: str) -> None:
    assert says in "\n".join(broken(change))


def add_everywhere(protos: FileDescriptorSet) -> None:
    types = file(protos, "types")
    message(protos, "Task").field.add(name="more", json_name="more", number=99, type=FieldDescriptorProto.TYPE_BOOL)
    alternative = message(protos, "Value").field.add(name="more", json_name="more", number=99)
    alternative.type, alternative.oneof_index = FieldDescriptorProto.TYPE_BOOL, 0
    types.message_type.add(name="More")
    types.enum_type[0].value.add(name="MODALITY_SMELL", number=99)
    file(protos, "expert").service[0].method.add(name="More", input_type=".a.B", output_type=".a.C")


def test_additions_break_nothing() -> None:
    assert broken(add_everywhere) == []


def test_todays_protos_keep_what_was_promised() -> None:
    assert promises.broken(promises.of_protos(released_protos()), promises.of_protos(todays_protos())) == []


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a copy of the last release is kept, for programs of this process."""
    for name in ("PROTOS", "TASKS"):
        copy = shutil.copy(getattr(released, name), tmp_path)
        monkeypatch.setattr(released, name, Path(copy))
    return tmp_path / PROTOS.name


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["released", *arguments])
    released.main()


def test_a_release_takes_over_what_was_added(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "--check")
    assert kept.read_bytes() == PROTOS.read_bytes()
    run(monkeypatch)
    assert FileDescriptorSet.FromString(kept.read_bytes()) == todays_protos()


@pytest.mark.parametrize("arguments", [["--check"], []], ids=["check", "release"])
def test_a_broken_promise_ends_the_program_and_is_no_release(
    kept: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    more = released_protos()
    add_everywhere(more)
    kept.write_bytes(more.SerializeToString())
    with pytest.raises(SystemExit, match="Task was more, is gone"):
        run(monkeypatch, *arguments)
    assert kept.read_bytes() == more.SerializeToString()


# ---------------------------------------------------------------- standard tasks

SAYING = TaskSpec(name="saying", inputs=[Port(name="text", modality=MODALITY_TEXT, required=True)])


def spoilt(**changes: object) -> Sequence[str]:
    changed = TaskSpec(name="saying", inputs=[Port(name="text", modality=MODALITY_TEXT, required=True)])
    for name, value in changes.items():
        setattr(changed.inputs[0], name, value)
    return promises.broken(promises.of_tasks([SAYING]), promises.of_tasks([changed]))


def test_a_standard_task_keeps_its_ports() -> None:
    (said,) = spoilt(required=False)
    assert said == ("what task saying takes was text (required MODALITY_TEXT), is text (optional MODALITY_TEXT)")
    assert spoilt(name="words") != []
    assert spoilt(many=True) != []
    assert spoilt(description="in other words") == []


def test_a_standard_task_gets_no_further_port() -> None:
    more = TaskSpec(name="saying", inputs=[*SAYING.inputs, Port(name="tone", modality=MODALITY_TEXT)])
    assert len(promises.broken(promises.of_tasks([SAYING]), promises.of_tasks([more]))) == 1


def test_no_standard_task_goes() -> None:
    assert "task saying was a standard one, is gone" in promises.broken(promises.of_tasks([SAYING]), {})


def test_todays_standard_tasks_keep_what_was_promised() -> None:
    before = promises.of_tasks(read_tasks(TASKS.read_text(encoding="utf-8")).values())
    assert promises.broken(before, promises.of_tasks(standard_tasks().values())) == []
