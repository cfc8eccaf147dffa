import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.planner.plan import Decision, Draft, File, Note, NoteKind, Reference, Task, Text
from tests.eval.attached import named, request, stand_ins
from tests.eval.comparison import graph
from tests.eval.lines import Answer, BadLines, Graph, Line, read
from tests.eval.tools import HUB_NAMES, Spelling, catalogue, names, spelling, unknown
from tests.support.plans import STANDARD

DATA = Path(__file__).parents[1] / "eval" / "data"
WHOLE: dict[str, Any] = {"id": "1", "request": "Translate", "type": "single", "tasks": ["Translation"], "links": []}
Write = Callable[..., Path]


@pytest.fixture
def write_lines(tmp_path: Path) -> Write:
    def write_lines(*lines: object) -> Path:
        path = tmp_path / "requests.jsonl"
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text("\n".join(texts), encoding="utf-8")
        return path

    return write_lines


def test_labels_may_be_absent(write_lines: Write) -> None:
    assert read(write_lines(WHOLE, "", {"id": 2, "request": "Hello"})) == [
        Line("1", "Translate", "single", Answer(Graph(("Translation",)))),
        Line(2, "Hello"),
    ]


def test_links_may_be_indices_and_accept_lists_other_plans(write_lines: Write) -> None:
    other: dict[str, Any] = {
        "tasks": ["A", "B"],
        "links": [[0, 1]],
        "arguments": [{"task": 1, "text": {"output_of": 0}}],
    }
    line = read(write_lines(WHOLE | {"accept": [other]}))[0]
    assert line.accept == (Answer(Graph(("A", "B"), (("A", "B"),)), tuple(other["arguments"])),)
    assert line.answers == (Answer(Graph(("Translation",))), *line.accept)


def test_label_is_empty_if_no_plan_is_expected(write_lines: Write) -> None:
    assert read(write_lines({"id": 1, "request": "Hi", "expect": "chat"}))[0].label == Answer(Graph())


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is list, not an object"),
        ({"request": "x"}, "line 2 needs a text or number as id"),
        ({"id": 1, "request": None}, "line 2 needs a text or number as id and a text as request"),
        (WHOLE | {"tasks": "Translation"}, "line 2: tasks must be a list of names"),
        (WHOLE | {"tasks": [1]}, "line 2: tasks must be a list of names"),
        ({"id": 1, "request": "x", "tasks": ["A", "B"]}, "line 2 has several tasks and no links"),
        (WHOLE | {"links": [["Translation"]]}, "line 2: links must be pairs"),
        (WHOLE | {"links": [["Translation", "Speech"]]}, "line 2: links must be pairs of tasks"),
        (WHOLE | {"links": [[0, 1]]}, "line 2: links must be pairs of tasks"),
        (WHOLE | {"links": [[["Translation"], 0]]}, "line 2: links must be pairs of tasks"),
        (WHOLE | {"accept": [{"tasks": 1}]}, "line 2: tasks must be a list of names"),
        (WHOLE | {"accept": "Translation"}, "line 2: accept must be a list of plans"),
        (WHOLE | {"accept": [{}]}, "line 2: accept must be a list of plans"),
        ("[" * 100_000, "line 2 is not JSON"),
        (WHOLE | {"files": "a.png"}, "line 2: files must be written as"),
        (WHOLE | {"links": {"a": "b"}}, "line 2: links must be pairs"),
        (WHOLE | {"files": ["a.png"]}, "line 2: files must be written as"),
        (WHOLE | {"arguments": [{"task": 1}]}, "line 2: arguments must be written as"),
        (WHOLE | {"arguments": [{"task": 0, "text": {"output_of": 7}}]}, "line 2: arguments must be written as"),
        (WHOLE | {"expect": "nothing"}, "line 2: expect must be plan, clarify, unmapped or chat"),
    ],
)
def test_invalid_line_error_names_the_line(write_lines: Write, line: Any, complaint: str) -> None:
    with pytest.raises(BadLines, match=re.escape(complaint)):
        read(write_lines(WHOLE, line))


def test_file_without_lines_is_an_error(write_lines: Write) -> None:
    with pytest.raises(BadLines, match="has no lines: write one JSON object per line"):
        read(write_lines(""))


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "marked.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 1, "request": "Hello"}\r\n')
    assert read(path) == [Line(1, "Hello")]


def test_missing_file_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadLines, match="cannot be read"):
        read(tmp_path / "absent.jsonl")


def test_wrong_encoding_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"id": 1, "request": "caf\xe9"}')
    with pytest.raises(BadLines, match="cannot be read"):
        read(path)


def test_own_requests_are_valid() -> None:
    lines = read(DATA / "own.jsonl")
    assert all(line.label and line.label.arguments is not None and line.files is not None for line in lines)
    assert spelling(lines) is Spelling.HUB
    assert unknown(lines, Spelling.HUB) == []


# ---------------------------------------------------------------- spelling


def test_every_tool_of_taskbench_has_a_standard_task() -> None:
    tools = [tool["id"] for tool in json.loads((DATA / "tools.json").read_text(encoding="utf-8"))]
    assert list(HUB_NAMES) == tools
    assert set(HUB_NAMES.values()) <= STANDARD.keys()


def test_taskbench_file_is_complete() -> None:
    lines = read(DATA / "taskbench.jsonl")
    assert len(lines) == 2064
    assert unknown(lines, spelling(lines)) == []


def test_vocabulary_follows_the_labels() -> None:
    assert spelling([Line(1, "", label=Answer(Graph(("Text-to-Speech",))))]) is Spelling.TASKBENCH
    assert spelling([Line(1, ""), Line(2, "", label=Answer(Graph(("text-to-speech",))))]) is Spelling.HUB


def test_vocabulary_without_labels_is_taskbench_unless_files_are_attached() -> None:
    assert spelling([Line(1, "")]) is Spelling.TASKBENCH
    assert spelling([Line(1, "", files=())]) is Spelling.HUB


def test_catalogue_follows_the_vocabulary() -> None:
    assert len(catalogue(Spelling.TASKBENCH)) == 22  # two of 23 tools are one task
    assert catalogue(Spelling.HUB) == STANDARD


def test_unknown_labels_are_listed() -> None:
    lines = [Line(1, "", label=Answer(Graph(("Translation", "Cooking"))))]
    assert unknown(lines, Spelling.TASKBENCH) == ["Cooking"]


@pytest.mark.parametrize(
    ("task", "tool"),
    [
        *((hub, tool) for tool, hub in HUB_NAMES.items() if hub != "image-to-image"),
        ("zero-shot-image-classification", "Image Classification"),
        ("image-super-resolution", "Image-to-Image"),
        ("inpainting", "Image Editing"),
        ("keypoint-detection", "keypoint-detection"),
    ],
)
def test_tasks_are_mapped_to_tools(task: str, tool: str) -> None:
    draft = Draft((Task(1, task),), (), Decision("embedded", ""))
    assert names(draft, Spelling.TASKBENCH) == {1: tool}
    assert names(draft, Spelling.HUB) == {1: task}


@pytest.mark.parametrize(
    ("arguments", "tool"),
    [
        ({}, "Image-to-Image"),
        ({"instruction": Text("match the style of the target")}, "Image-to-Image"),
        ({"instruction": Text("Make the sky blue")}, "Image Editing"),
    ],
)
def test_instruction_makes_image_to_image_an_edit(arguments: dict[str, Text], tool: str) -> None:
    draft = Draft((Task(1, "image-to-image", arguments),), (), Decision("embedded", ""))
    assert names(draft, Spelling.TASKBENCH) == {1: tool}


def test_graph_of_a_plan_has_names_and_every_link_once() -> None:
    tasks = (
        Task(1, "summarization", {"text": Text("…")}),
        Task(2, "translation", {"text": Reference(1, "text")}),
        Task(3, "translation", {"text": Reference(1, "text")}),
    )
    plan = graph(Draft(tasks, (), Decision("embedded", "")), Spelling.TASKBENCH)
    assert plan == Graph(("Summarization", "Translation", "Translation"), (("Summarization", "Translation"),))


# ---------------------------------------------------------------- files


def test_files_named_in_the_text_are_attached() -> None:
    asked = request(Line(1, "Compare 'example.jpg' with example.JPG and (talk.wav); see example.jpg and www.a.com."))
    values = [named.value for named in asked.inputs if isinstance(named.value, File)]
    assert [(value.name, value.media_type.partition("/")[0]) for value in values] == [
        ("example.jpg", "image"),
        ("example.JPG", "image"),
        ("talk.wav", "audio"),
    ]


def test_file_name_may_contain_a_space_before_the_extension() -> None:
    assert [file.name for file in named("I have 'example. wav', the end. Wave at me.")] == ["example.wav"]


def test_listed_files_replace_those_named_in_the_text() -> None:
    assert request(Line(1, "See a.png", files=())).inputs == ()


def test_stand_in_files_are_added_if_the_planner_asks_for_a_file() -> None:
    asking = Draft((), (Note(NoteKind.CLARIFY, "Which picture?"),), Decision("embedded", ""))
    assert [file.media_type for file in stand_ins(Line(1, "Edit it like a.png"), asking)] == ["audio/wav", "video/mp4"]
    assert stand_ins(Line(1, "Edit it", files=()), asking) == []


def test_no_stand_in_files_are_added_to_a_complete_plan() -> None:
    assert stand_ins(Line(1, "Translate"), Draft((Task(1, "translation"),), (), Decision("embedded", ""))) == []


def test_intents_distinguish_tools_of_the_same_task() -> None:
    tasks = (Task(1, "image-to-image"), Task(2, "document-question-answering"))
    draft = Draft(tasks, (), Decision("embedded", ""), {1: "image-editing", 2: "table-question-answering"})
    assert names(draft, Spelling.TASKBENCH) == {1: "Image Editing", 2: "Tabular Classification"}
    assert names(draft, Spelling.HUB) == {1: "image-to-image", 2: "document-question-answering"}
