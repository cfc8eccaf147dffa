"""The words of a model's task, and what its values stand for."""

import pytest

from services.planner.llm.json_stream import RawTask
from services.planner.llm.names import match_parameter, match_task
from services.planner.llm.plan_format import MAX_SOURCE_LENGTH, Fault, parse_task
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
    ("written", "means"),
    [
        (0, 0),
        ("7", 7),
        (2.0, 2),
        ("2.0", 2),
        ("task-3", 3),
        (None, None),
        (True, None),
        (-1, None),
        ("first", None),
        (2.5, None),
        (10**30, None),
        ([1], None),
    ],
)
def test_an_id_is_a_whole_number_however_it_is_written(written: object, means: int | None) -> None:
    assert parse_task(RawTask({"task": "t", "id": written})).wire_id == means


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ([-1], ()),
        (-1, ()),
        ("-1", ()),
        ([], ()),
        (None, None),
        ([0, "1", 2.0], (0, 1, 2)),
        ("0, 1", (0, 1)),
        (0, (0,)),
        (["task-1", -1, None], (1,)),
    ],
)
def test_dependencies_may_be_a_list_a_number_or_text(written: object, means: tuple[int, ...] | None) -> None:
    assert parse_task(RawTask({"task": "t", "dep": written})).needs == means


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "t", "args": {"a": 1, "b": "x"}},
        {"task": "t", "arguments": {"a": 1}, "parameters": {"b": "x"}},
        {"name": "t", "arguments": '{"a": 1, "b": "x"}'},
        {"task": "t", "args": [{"name": "a", "value": 1}, {"b": "x"}]},
        {"task": "t", "id": 0, "dep": [-1], "a": 1, "b": "x", "source": "words"},
    ],
)
def test_arguments_are_found_wherever_they_stand(fields: dict[str, object]) -> None:
    said = parse_task(RawTask(fields))
    assert said.task == "t"
    assert said.given == (("a", 1), ("b", "x"))


def test_arguments_may_have_no_names() -> None:
    assert parse_task(RawTask({"task": "t", "args": ["<file1>", "who?"]})).given == (("", "<file1>"), ("", "who?"))
    for text in ("<file1>", "{not JSON}"):
        assert parse_task(RawTask({"task": "t", "args": text})).given == (("", text),)


def test_the_words_a_task_came_from_are_kept_but_not_without_end() -> None:
    assert parse_task(RawTask({"task": "t", "source": " read it "})).source == "read it"
    assert len(parse_task(RawTask({"task": "t", "source": "x" * 1_000})).source) == MAX_SOURCE_LENGTH
    assert parse_task(RawTask({"task": "t", "source": ["x"]})).source == ""


@pytest.mark.parametrize(
    ("written", "resource"),
    [
        ("<GENERATED>-0", "GENERATED"),
        ("<GENERATED-0>", "GENERATED"),
        ("<resource>-0", "resource"),
        ("<image>-0", "image"),
        ("<text-0>", "text"),
        ("< image > - 0", "image"),
        ("<image>_0", "image"),
        ("<node-0>", "node"),
        ("<task_0.text>", "text"),
        ("<GENERATED>-0.text", "text"),
        ("{{task_0.text}}", "text"),
        ("{{ 0.text }}", "text"),
        ("${task_0.outputs.text}", "text"),
        ("{{tasks[0].output['text']}}", "text"),
        ("task_0.text", "text"),
        ("image-0", "image"),
        ("$0", "$"),
        ({"task_id": 0, "output": "text"}, "text"),
        ({"": {"task_0.text": None}}, "text"),
        (["<image>-0"], "image"),
    ],
)
def test_an_output_may_be_named_in_many_ways(written: object, resource: str) -> None:
    assert interpret(written, NAMES) == [OutputReference(0, resource)]


@pytest.mark.parametrize(
    "written",
    [
        "<file1>",
        "file1",
        "FILE 1",
        "<sign.png>",
        "sign.png",
        "/examples/sign.png",
        {"input": "file1"},
        {"text": "file1"},
    ],
)
def test_an_input_may_be_named_by_its_name_or_its_file(written: object) -> None:
    assert interpret(written, NAMES) == [InputReference("file1")]


@pytest.mark.parametrize(
    ("written", "means"),
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
        ("what is in <file1>?", [EmbeddedReference("file1")]),
    ],
)
def test_other_values_are_words_data_or_lists(written: object, means: list[Interpretation]) -> None:
    assert interpret(written, NAMES) == means


@pytest.mark.parametrize(
    "written",
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
def test_a_path_or_an_address_is_known_for_what_it_is(written: str) -> None:
    assert interpret(written, NAMES) == [ExternalReference()]


def test_two_files_of_one_name_are_not_guessed_between() -> None:
    names = InputNames({"file1": file("a.png"), "file2": file("a.png")})
    assert interpret("a.png", names) == [ExternalReference()]
    assert interpret("file2", names) == [InputReference("file2")]


@pytest.mark.parametrize("text", VALUES.values(), ids=VALUES)
@pytest.mark.timeout(30)
def test_values_made_to_be_slow_are_not(text: str) -> None:
    assert interpret(text, NAMES)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("Image-to-Text", "image-to-text"),
        ("image_to_text", "image-to-text"),
        ("TextToSpeech", "text-to-speech"),
        ("ASR", "automatic-speech-recognition"),
        ("automatic speech recogniton", "automatic-speech-recognition"),
        ("speech-recognition", "automatic-speech-recognition"),
        ("OCR tool", "image-to-text"),
        ("super-resolution", "image-super-resolution"),
        ("image-clasification", "image-classification"),
        ("text summarization", "summarization"),
        ("telepathy", None),
        ("classification", None),
        ("tabular-classification", None),
        ("", None),
    ],
)
def test_a_task_is_known_by_other_names(asked: str, meant: str | None) -> None:
    assert match_task(asked, STANDARD) == meant


@pytest.mark.parametrize("asked", ["text-to-video", "audio-classification", "depth-control", "translation"])
def test_a_task_that_nobody_offers_is_not_taken_for_one_that_looks_like_it(asked: str) -> None:
    assert match_task(asked, STANDARD.keys() - {asked}) is None


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("target_lang", "target_language"),
        ("to_language", "target_language"),
        ("src", "source_language"),
        ("lang", None),
    ],
)
def test_a_parameter_is_known_by_its_words(asked: str, meant: str | None) -> None:
    assert match_parameter(asked, ["source_language", "target_language"]) == meant


def test_a_fault_names_the_task_as_the_model_does() -> None:
    assert str(Fault(0, "tts", "it is wrong", "mend it")) == "task 0 (tts): it is wrong (mend it)"
    assert str(Fault(None, "", "it is long", "shorten it")) == "it is long (shorten it)"
