"""Incremental reading of plans in LLM answers."""

import json

import pytest

from services.planner.llm.json_stream import MAX_ANSWER_LENGTH, MAX_OBJECT_LENGTH, PlanReader, RawNote
from services.planner.plan import NoteKind

FIRST = {"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "<file1>"}}
SECOND = {"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<text>-0"}, "source": "say it"}
PLAN = json.dumps([FIRST, SECOND])


def read(text: str, *, piece: int = 0) -> tuple[list[object], PlanReader]:
    reader = PlanReader()
    pieces = [text[at : at + piece] for at in range(0, len(text), piece)] if piece else [text]
    tasks: list[object] = [raw.fields for part in pieces for raw in reader.feed(part)]
    return tasks, reader


@pytest.mark.parametrize(
    "text",
    [
        PLAN,
        json.dumps([FIRST, SECOND], indent=2),
        json.dumps({"tasks": [FIRST, SECOND]}),
        json.dumps({"plan": [FIRST, SECOND], "notes": []}),
        json.dumps({"task": "do what was asked", "steps": [FIRST, SECOND]}),
        f"{json.dumps(FIRST)}\n{json.dumps(SECOND)}\n",
        f"```json\n{PLAN}\n```",
        f"Sure, here's the plan [as asked]:\n\n{PLAN}\n\nIt's what you'd want.",
        f'<think>Maybe {{"task": "no"}}?</think>\n{PLAN}',
        PLAN.replace("}]", ",},]"),
        str([FIRST, SECOND]),
        PLAN.replace('"', "“").replace("“,", "”,"),
        json.dumps({"tasks": [FIRST, SECOND]}).replace('}, {"task"', '}, // then {aloud}\n {"task"'),
        PLAN.replace('"id"', "id").replace('"args"', "args").replace('"dep"', "// why\n'dep'"),
        PLAN.replace(', "args"', ' "args"'),
        PLAN[:-2] + "]",
        PLAN.replace('}}, {"task"', '}, {"task"'),
        PLAN + "}}]",
        f"<b>The plan</b> w/o a word: {PLAN}",
        f"<think>{{ <b>a</b> </a-long-tag-that-is-none> </think> {PLAN}",
        PLAN.replace('"say it"', '"say it" // aloud\n'),
    ],
)
def test_plan_is_read_from_every_wrapping_and_spelling(text: str) -> None:
    assert read(text)[0] == [FIRST, SECOND]
    assert read(text, piece=1)[0] == [FIRST, SECOND]


def test_task_is_available_at_its_closing_brace() -> None:
    reader = PlanReader()
    end = PLAN.index("}}") + 2
    assert reader.feed(PLAN[: end - 1]) == []
    assert [raw.fields for raw in reader.feed(PLAN[end - 1 : end])] == [FIRST]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("None", None),
        ("null", None),
        ("True", True),
        ("false", False),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ("9" * 5_000, "9" * 5_000),
        ("-1.5e2", -150.0),
        ("<text>-0", "<text>-0"),
        ("http://a/b // where it is", "http://a/b"),
        ('"line\none"', "line\none"),
        ('"tab\tbell\x07"', "tab\tbell\x07"),
        ('"He said "hi" to me"', 'He said "hi" to me'),
        ("'it's'", "it's"),
        (r'"\u12 and \x4a"', "\\u12 and \\x4a"),
        (r'"\u00e9\ud83d\ude00\n\/\'\d"', "é😀\n/'\\d"),
        (r'"\ud83d alone"', "\ufffd alone"),
        ('"half \ud83d"', "half \ufffd"),
        ('"{[ ]}"', "{[ ]}"),
    ],
)
def test_malformed_values_are_repaired(value: str, expected: object) -> None:
    [task], _ = read('{"task": "t", "args": {"x": ' + value + "}}")
    assert task == {"task": "t", "args": {"x": expected}}


def test_objects_in_arguments_are_not_tasks() -> None:
    task = {"task": "t", "args": {"steps": [{"task": "u", "args": {}}], "x": {"task": "v"}}}
    assert read(json.dumps([task]))[0] == [task]


def test_braces_around_a_plan_are_not_tasks() -> None:
    assert read(f"Use {{curly}} and {{'note': None}}. {PLAN}")[0] == [FIRST, SECOND]


def test_text_with_the_word_error_is_still_a_plan() -> None:
    task = {"task": "text-to-speech", "args": {"text": 'there was an "error" \\ here'}}
    assert read(json.dumps(task))[0] == [task]


def test_notes_are_read_inside_and_next_to_the_task_list() -> None:
    text = """[{"note": "Unmapped", "text": "no mail", "source": "mail it"}]
    {"tasks": [], "notes": [{"note": "clarify", "text": "Which file?"}]} {"note": "odd", "text": "x"}"""
    assert read(text)[1].notes == [
        RawNote(NoteKind.UNMAPPED, "no mail", "mail it"),
        RawNote(NoteKind.CLARIFY, "Which file?"),
    ]


@pytest.mark.parametrize("end", range(1, len(PLAN)))
def test_truncated_text_is_incomplete_and_yields_only_complete_tasks(end: int) -> None:
    tasks, reader = read(PLAN[:end])
    assert tasks == [FIRST, SECOND][: len(tasks)]
    assert reader.is_incomplete
    assert not reader.dropped


@pytest.mark.parametrize("text", [PLAN, f"```\n{PLAN}\n``` // done", "Nothing to do.", ""])
def test_complete_text_is_not_incomplete(text: str) -> None:
    assert not read(text)[1].is_incomplete


@pytest.mark.parametrize(
    ("oversized", "message"),
    [
        ('{"task": "t", "args": {"x": "' + "y" * 2 * MAX_OBJECT_LENGTH + '"}}', "longer than 65536"),
        ('{"task": "t", "args": [' + '{"a": 1},' * 10_000 + "]}", "longer than 65536"),
        ('{"task": "t", "args": ' + "[" * 2_000 + "]" * 2_000 + "}", "nested more than 32 deep"),
        ('{"task": "t", "args": ' + '{"a":' * 2_000 + "1" + "}" * 2_000 + "}", "nested more than 32 deep"),
    ],
)
def test_too_large_or_deep_object_is_dropped_and_the_rest_is_read(oversized: str, message: str) -> None:
    tasks, reader = read(f"[{oversized}, {json.dumps(SECOND)}]")
    assert tasks == [SECOND]
    assert message in str(reader.dropped)


def test_plan_of_many_tasks_is_not_too_large() -> None:
    tasks, reader = read(json.dumps({"tasks": [*[SECOND] * 1_000, {"note": "chat", "text": "hi"}]}))
    assert len(tasks) == 1_000
    assert reader.dropped == []
    assert len(reader.notes) == 1


def test_overlong_answer_is_read_up_to_the_limit() -> None:
    tasks, reader = read("[" + (json.dumps(FIRST) + ",") * (MAX_ANSWER_LENGTH // 50) + "]", piece=1_000)
    assert 0 < len(tasks) < MAX_ANSWER_LENGTH // 50
    assert "longer than" in reader.dropped[0]
