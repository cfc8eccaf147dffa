"""What a model writes, read as it comes."""

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
    tasks: list[object] = [raw.fields for each in pieces for raw in reader.feed(each)]
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
        "[" + json.dumps(FIRST) + ", // then {aloud}\n/* {x} */ " + json.dumps(SECOND) + "]",
        PLAN.replace('"id"', "id").replace('"args"', "args").replace('"dep"', "# why\n'dep'"),
        PLAN.replace(', "args"', ' "args"'),
        PLAN[:-2] + "]",
        PLAN.replace('}}, {"task"', '}, {"task"'),
        "{" + json.dumps(FIRST) + "}" + json.dumps(SECOND),
        PLAN + "}}]",
        PLAN.replace('{"task"', '{["task"', 1),
        PLAN[:-2] + "\n```\nThat is all.",
        f"<b>The plan</b> w/o a word: {PLAN}",
        f"<think>{{ <b>a</b> </a-long-tag-that-is-none> </think> {PLAN}",
        PLAN.replace('"say it"', '"say it" // aloud\n'),
    ],
)
def test_a_plan_is_found_however_it_is_wrapped_and_spelt(text: str) -> None:
    assert read(text)[0] == [FIRST, SECOND]
    assert read(text, piece=1)[0] == [FIRST, SECOND]


def test_a_task_is_there_with_its_closing_brace_and_not_later() -> None:
    reader = PlanReader()
    end = PLAN.index("}}") + 2
    assert reader.feed(PLAN[: end - 1]) == []
    assert [raw.fields for raw in reader.feed(PLAN[end - 1 : end])] == [FIRST]


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("None", None),
        ("null", None),
        ("True", True),
        ("false", False),
        ("NaN", None),
        ("-Infinity", None),
        ("1e999", "1e999"),
        ("9" * 5_000, "9" * 5_000),
        ("-1.5e2", -150.0),
        ("<text>-0", "<text>-0"),
        ("http://a/b // where it is", "http://a/b"),
        ('"line\none"', "line\none"),
        ('"tab\tbell\x07"', "tab\tbell\x07"),
        ('"He said "hi" to me"', 'He said "hi" to me'),
        ("'it's'", "it's"),
        ("`it`", "it"),
        ("/etc/passwd", "/etc/passwd"),
        (r'"\u12 and \x4a"', "\\u12 and J"),
        (r'"\u00e9\ud83d\ude00\n\/\'\d"', "é😀\n/'\\d"),
        (r'"\ud83d alone"', "\ufffd alone"),
        ('"half \ud83d"', "half \ufffd"),
        ('"{[ ]}"', "{[ ]}"),
    ],
)
def test_values_are_what_they_were_meant_to_be(written: str, means: object) -> None:
    [task], _ = read('{"task": "t", "args": {"x": ' + written + "}}")
    assert task == {"task": "t", "args": {"x": means}}


def test_objects_within_arguments_are_no_tasks() -> None:
    task = {"task": "t", "args": {"steps": [{"task": "u", "args": {}}], "x": {"task": "v"}}}
    assert read(json.dumps([task]))[0] == [task]


def test_words_in_braces_around_a_plan_are_no_tasks() -> None:
    assert read(f"Use {{curly}} and {{'chat': None}}. {PLAN}")[0] == [FIRST, SECOND]


def test_a_plan_that_speaks_of_an_error_is_a_plan() -> None:
    task = {"task": "text-to-speech", "args": {"text": 'there was an "error" \\ here'}}
    assert read(json.dumps(task))[0] == [task]


def test_remarks_stand_among_tasks_or_beside_them() -> None:
    text = """[{"note": "Unmapped", "text": "no mail", "source": "mail it"}, {"clarify": "Which file?"}]
    {"tasks": [], "chat": "Hello!"} {"note": "odd", "text": "x"} {"chat": 3}"""
    assert read(text)[1].notes == [
        RawNote(NoteKind.UNMAPPED, "no mail", "mail it"),
        RawNote(NoteKind.CLARIFY, "Which file?"),
        RawNote(NoteKind.CHAT, "Hello!"),
    ]


@pytest.mark.parametrize("end", range(1, len(PLAN)))
def test_text_that_is_cut_is_unfinished_and_nothing_is_guessed(end: int) -> None:
    tasks, reader = read(PLAN[:end])
    assert tasks == [FIRST, SECOND][: len(tasks)]
    assert reader.is_incomplete
    assert not reader.dropped


@pytest.mark.parametrize("text", [PLAN, f"```\n{PLAN}\n``` // done", "Nothing to do.", ""])
def test_text_that_ends_well_is_finished(text: str) -> None:
    assert not read(text)[1].is_incomplete


@pytest.mark.parametrize(
    ("hostile", "says"),
    [
        ('{"task": "t", "args": {"x": "' + "y" * 2 * MAX_OBJECT_LENGTH + '"}}', "longer than 65536"),
        ('{"task": "t", "args": [' + '{"a": 1},' * 10_000 + "]}", "longer than 65536"),
        ('{"task": "t", "args": ' + "[" * 2_000 + "]" * 2_000 + "}", "nested more than 32 deep"),
        ('{"task": "t", "args": ' + '{"a":' * 2_000 + "1" + "}" * 2_000 + "}", "nested more than 32 deep"),
    ],
)
def test_what_is_too_large_or_too_deep_is_dropped_and_told_and_the_rest_is_read(hostile: str, says: str) -> None:
    tasks, reader = read(f"[{hostile}, {json.dumps(SECOND)}]")
    assert tasks == [SECOND]
    assert says in str(reader.dropped)


def test_a_plan_of_many_tasks_in_one_object_is_not_too_large() -> None:
    tasks, reader = read(json.dumps({"tasks": [SECOND] * 1_000, "chat": "hi"}))
    assert len(tasks) == 1_000
    assert reader.dropped == []
    assert len(reader.notes) == 1


def test_an_endless_answer_is_read_up_to_a_limit_and_told() -> None:
    tasks, reader = read("[" + (json.dumps(FIRST) + ",") * (MAX_ANSWER_LENGTH // 50) + "]", piece=1_000)
    assert 0 < len(tasks) < MAX_ANSWER_LENGTH // 50
    assert "longer than" in reader.dropped[0]
