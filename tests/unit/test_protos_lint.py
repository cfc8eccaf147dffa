"""The rules of buf's STANDARD set that matter here, checked on the compiled protos."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

from protos.generate import compile_protos

SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
PASCAL_CASE = re.compile(r"([A-Z][a-z0-9]*)+")
PUBLIC, INTERNAL = "hugginggpt.v1", "hugginggpt.internal.v1"


@pytest.fixture(scope="module")
def files() -> list[FileDescriptorProto]:
    with TemporaryDirectory() as folder:
        compiled = Path(folder) / "protos.binpb"
        compile_protos(f"--descriptor_set_out={compiled}")
        return list(FileDescriptorSet.FromString(compiled.read_bytes()).file)


def messages(file: FileDescriptorProto) -> Iterator[DescriptorProto]:
    """All messages, nested ones included, without the entries of maps."""
    stack = list(file.message_type)
    while stack:
        message = stack.pop()
        if not message.options.map_entry:
            yield message
        stack.extend(message.nested_type)


def enums(file: FileDescriptorProto) -> Iterator[EnumDescriptorProto]:
    yield from file.enum_type
    for message in messages(file):
        yield from message.enum_type


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def test_package_is_versioned_and_matches_directory(files: list[FileDescriptorProto]) -> None:
    for file in files:
        directory = Path(file.name).parent.relative_to("protos")
        assert file.package == ".".join(directory.parts)
        assert re.search(r"\.v\d+$", file.package)


def test_files_have_the_options_of_their_package(files: list[FileDescriptorProto]) -> None:
    for package in (PUBLIC, INTERNAL):
        options = [file.options for file in files if file.package == package]
        assert len({each.go_package for each in options}) == 1
        assert {each.java_package for each in options} == {f"dev.{package}"}
        assert all(each.java_multiple_files for each in options)


def test_public_package_does_not_use_the_internal_one(files: list[FileDescriptorProto]) -> None:
    for file in files:
        if file.package == PUBLIC:
            assert not [name for name in file.dependency if "/internal/" in name]


def test_names_have_the_case_of_their_kind(files: list[FileDescriptorProto]) -> None:
    for file in files:
        assert SNAKE_CASE.fullmatch(Path(file.name).stem)
        for message in messages(file):
            assert PASCAL_CASE.fullmatch(message.name)
            for field in message.field:
                assert SNAKE_CASE.fullmatch(field.name), f"{message.name}.{field.name}"


def test_services_end_with_service(files: list[FileDescriptorProto]) -> None:
    assert [service.name for file in files for service in file.service if not service.name.endswith("Service")] == []


def test_method_names_are_unique_verbs_with_requests_named_after_them(files: list[FileDescriptorProto]) -> None:
    for file in files:
        for service in file.service:
            for method in service.method:
                assert PASCAL_CASE.fullmatch(method.name)
                assert method.input_type.rsplit(".", 1)[1] == f"{method.name}Request"


def test_responses_are_named_after_their_method_or_are_resources_or_events(files: list[FileDescriptorProto]) -> None:
    for file in files:
        for service in file.service:
            for method in service.method:
                name = method.output_type.rsplit(".", 1)[1]
                is_resource_or_event = not name.endswith("Response")
                assert is_resource_or_event or name == f"{method.name}Response"


def test_enum_values_have_the_prefix_of_their_enum_and_start_with_unspecified(files: list[FileDescriptorProto]) -> None:
    for file in files:
        for enum in enums(file):
            prefix = snake(enum.name).upper()
            assert enum.value[0].number == 0
            assert enum.value[0].name == f"{prefix}_UNSPECIFIED"
            assert [value.name for value in enum.value if not value.name.startswith(f"{prefix}_")] == []


def test_lists_are_paged(files: list[FileDescriptorProto]) -> None:
    fields = {message.name: {field.name for field in message.field} for file in files for message in messages(file)}
    for name, present in fields.items():
        if re.fullmatch(r"List\w+Request", name):
            assert present >= {"page_size", "page_token"}, name
        if re.fullmatch(r"List\w+Response", name):
            assert "next_page_token" in present, name
