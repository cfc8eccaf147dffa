"""Parsing of tasks in LLM answers, and interpretation of their values."""

import pytest

from services.planner.llm.argument_binding import match_parameter
from services.planner.llm.json_stream import RawTask
from services.planner.llm.normalization import match_task
from services.planner.llm.plan_format import MAX_SOURCE_LENGTH, parse_task
from services.planner.llm.values import (
    EmbeddedReference,
    ExternalReference,
    InputNames,
    InputReference,
    Interpretation,
    JsonLiteral,
    MissingInput,
    OutputReference,
    TextLiteral,
    interpret,
)
from tests.bench.parsing import VALUES
from tests.support.plans import STANDARD, file

NAMES = InputNames({"file1": file("sign.png"), "file2": file("talk.wav"), "file3": file("my notes.txt")})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        ("7", 7),
        ("task-3", 3),
        (2.0, None),
        (None, None),
        (True, None),
        (-1, None),
        ("first", None),
        (2.5, None),
        (10**30, None),
        ([1], None),
    ],
)
def test_id_is_read_as_a_whole_number(value: object, expected: int | None) -> None:
    assert parse_task(RawTask({"task": "t", "id": value})).wire_id == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([-1], ()),
        (-1, ()),
        ("-1", ()),
        ([], ()),
        (None, None),
        ([0, "1"], (0, 1)),
        ("task-0", (0,)),
        (0, (0,)),
        (["task-1", -1, None], (1,)),
    ],
)
def test_dependencies_are_read_from_list_number_or_text(value: object, expected: tuple[int, ...] | None) -> None:
    assert parse_task(RawTask({"task": "t", "dep": value})).needs == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "t", "args": {"a": 1, "b": "x"}},
        {"task": "t", "arguments": {"a": 1}, "parameters": {"b": "x"}},
        {"name": "t", "arguments": '{"a": 1, "b": "x"}'},
        {"task": "t", "args": [{"name": "a", "value": 1}, {"name": "b", "value": "x"}]},
        {"task": "t", "id": 0, "dep": [-1], "a": 1, "b": "x", "source": "words"},
    ],
)
def test_arguments_are_read_from_every_location(fields: dict[str, object]) -> None:
    parsed = parse_task(RawTask(fields))
    assert parsed.task == "t"
    assert parsed.given == (("a", 1), ("b", "x"))


def test_unnamed_arguments_are_read() -> None:
    assert parse_task(RawTask({"task": "t", "args": ["<file1>", "who?"]})).given == (("", "<file1>"), ("", "who?"))
    for text in ("<file1>", "{not JSON}"):
        assert parse_task(RawTask({"task": "t", "args": text})).given == (("", text),)


def test_source_text_is_limited_in_length() -> None:
    assert parse_task(RawTask({"task": "t", "source": " read it "})).source == "read it"
    assert len(parse_task(RawTask({"task": "t", "source": "x" * 1_000})).source) == MAX_SOURCE_LENGTH
    assert parse_task(RawTask({"task": "t", "source": ["x"]})).source == ""


@pytest.mark.parametrize(
    ("value", "resource"),
    [
        ("<GENERATED>-0", "GENERATED"),
        ("<GENERATED-0>", "GENERATED"),
        ("<resource>-0", "resource"),
        ("<image>-0", "image"),
        ("<text-0>", "text"),
        ("<node-0>", "node"),
        ("{{task_0.text}}", "text"),
        ("{{ task_0.text }}", "text"),
        ("${task_0.text}", "text"),
        ("task_0.text", "text"),
        ("image-0", "image"),
        ("$0", ""),
        ({"task_id": 0, "output": "text"}, "text"),
        ({"task": 0}, ""),
        (["<image>-0"], "image"),
    ],
)
def test_output_reference_is_read_in_every_form(value: object, resource: str) -> None:
    assert interpret(value, NAMES) == [OutputReference(0, resource)]


@pytest.mark.parametrize(
    "value",
    [
        "<file1>",
        "file1",
        "<sign.png>",
        "sign.png",
        "/examples/sign.png",
        {"input": "file1"},
    ],
)
def test_input_is_found_by_name_or_file_name(value: object) -> None:
    assert interpret(value, NAMES) == [InputReference("file1")]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hello", [TextLiteral("hello")]),
        ("my notes.txt", [InputReference("file3")]),
        (" ", []),
        (None, []),
        (3, [JsonLiteral(3)]),
        ({"a": 1}, [JsonLiteral({"a": 1})]),
        ({"task": "a", "output": "b"}, [JsonLiteral({"task": "a", "output": "b"})]),
        ("<file9>", [MissingInput("file9")]),
        ("x_{12} costs $5 <b>7</b>, and <3", [TextLiteral("x_{12} costs $5 <b>7</b>, and <3")]),
        (
            "<image>-0, <image>-1 and <image>-2",
            [OutputReference(0, "image"), OutputReference(1, "image"), OutputReference(2, "image")],
        ),
        (["<file1>", "<text>-1", [2]], [InputReference("file1"), OutputReference(1, "text"), JsonLiteral([2])]),
        ("Summarize: <text>-0", [EmbeddedReference("<text>-0")]),
        ("< text > - 0", [EmbeddedReference("< text > - 0")]),
        ("<text>_0", [EmbeddedReference("<text>_0")]),
        ("<GENERATED>-0.text", [EmbeddedReference("<GENERATED>-0")]),
        ("${task_0.outputs.text}", [EmbeddedReference("${task_0.outputs.text}")]),
        ("{{tasks[0].output['text']}}", [EmbeddedReference("{{tasks[0].output['text']}")]),
        ("what is in <file1>?", [EmbeddedReference("file1")]),
    ],
)
def test_other_values_are_text_data_or_lists(value: object, expected: list[Interpretation]) -> None:
    assert interpret(value, NAMES) == expected


@pytest.mark.parametrize(
    "value",
    [
        "/etc/passwd",
        "~/.ssh/id",
        "../secret",
        "C:\\keys",
        "\\\\server\\share",
        "https://example.org/a",
        "<https://example.org/a.png>",
        "file:///etc/hosts",
        "data:image/png;base64,AAAA",
        "s3://bucket/key",
        "other.png",
        "my other photo.jpg",
    ],
)
def test_path_or_url_is_an_external_reference(value: str) -> None:
    assert interpret(value, NAMES) == [ExternalReference()]


def test_ambiguous_file_name_is_an_external_reference() -> None:
    names = InputNames({"file1": file("a.png"), "file2": file("a.png")})
    assert interpret("a.png", names) == [ExternalReference()]
    assert interpret("file2", names) == [InputReference("file2")]


@pytest.mark.parametrize("text", VALUES.values(), ids=VALUES)
@pytest.mark.timeout(30)
def test_adversarial_values_are_read_in_bounded_time(text: str) -> None:
    assert interpret(text, NAMES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Image-to-Text", "image-to-text"),
        ("image_to_text", "image-to-text"),
        ("TextToSpeech", "text-to-speech"),
        ("ASR", "automatic-speech-recognition"),
        ("speech-recognition", "automatic-speech-recognition"),
        ("super-resolution", "image-super-resolution"),
        ("text summarization", "summarization"),
        ("telepathy", None),
        ("classification", None),
        ("tabular-classification", None),
        ("", None),
    ],
)
def test_task_name_is_matched(name: str, expected: str | None) -> None:
    assert match_task(name, STANDARD) == expected


@pytest.mark.parametrize("name", ["text-to-video", "audio-classification", "depth-control", "translation"])
def test_unoffered_task_is_not_matched_to_a_similar_name(name: str) -> None:
    assert match_task(name, STANDARD.keys() - {name}) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("target_lang", "target_language"),
        ("target", "target_language"),
        ("src", "source_language"),
        ("lang", None),
    ],
)
def test_parameter_name_is_matched(name: str, expected: str | None) -> None:
    assert match_parameter(name, ["source_language", "target_language"]) == expected
