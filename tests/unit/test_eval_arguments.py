from collections.abc import Mapping
from typing import Any

import pytest

from services.planner.plan import Argument, Decision, Draft, Input, Json, Many, Reference, Task, Text
from services.planner.request import Request
from tests.eval.arguments import given, labelled, scores
from tests.eval.lines import Attached, Graph, Line
from tests.eval.planners import Outcome
from tests.planning import inputs

FILES = (Attached("a.png", "image/png"), Attached("b.png", "image/png"))


def line(*arguments: Mapping[str, Any], tasks: tuple[str, ...] = ("image-to-text", "translation")) -> Line:
    return Line(1, "…", graph=Graph(tasks), files=FILES, arguments=arguments)


def outcome(*tasks: Task) -> Outcome:
    return Outcome(Draft(tasks, (), Decision("embedded", "")), Request(inputs=inputs(["a.png", "b.png"])))


def test_files_outputs_texts_and_parameters_are_compared() -> None:
    wanted = line(
        {"task": 0, "image": {"file": "a.png"}}, {"task": 1, "text": {"output_of": 0}, "target_language": "fr"}
    )
    planned = outcome(
        Task(4, "image-to-text", {"image": Input("file1")}),
        Task(5, "translation", {"text": Reference(4, "text")}, parameters_json='{"target_language": "fr"}'),
    )
    assert given(planned) == labelled(wanted)
    assert scores([wanted], [planned]) == {"n": 1, "argument_f1": 100.0, "t_f1": 100.0, "v_f1": 100.0}


def test_the_wrong_file_on_the_right_port_is_half_right_by_name_only() -> None:
    wanted = line({"task": 0, "image": {"file": "a.png"}}, tasks=("image-to-text",))
    planned = outcome(Task(1, "image-to-text", {"image": Input("file2")}))
    assert scores([wanted], [planned]) == {"n": 1, "argument_f1": 0.0, "t_f1": 100.0, "v_f1": 0.0}


def test_the_right_text_on_the_wrong_port_is_right_by_value_only() -> None:
    wanted = line({"task": 0, "question": "Who?"}, tasks=("question-answering",))
    planned = outcome(Task(1, "question-answering", {"context": Text("Who?")}))
    assert scores([wanted], [planned]) == {"n": 1, "argument_f1": 0.0, "t_f1": 0.0, "v_f1": 100.0}


def test_what_is_given_too_much_counts_against_a_plan() -> None:
    wanted = line({"task": 0, "image": {"file": "a.png"}}, tasks=("image-to-text",))
    planned = outcome(Task(1, "image-to-text", {"image": Input("file1")}, parameters_json='{"language": "en"}'))
    found = scores([wanted], [planned])
    assert found
    assert found["argument_f1"] == 66.67


def test_every_file_of_a_list_counts() -> None:
    wanted = line({"task": 0, "sentences": [{"file": "a.png"}, {"file": "b.png"}]}, tasks=("sentence-similarity",))
    planned = outcome(Task(1, "sentence-similarity", {"sentences": Many((Input("file2"), Input("file1")))}))
    assert given(planned) == labelled(wanted)


@pytest.mark.parametrize(
    ("label", "argument"),
    [
        ("What is the total?", Text(" what is  the TOTAL")),
        ("Bonjour", Text("“Bonjour”.")),
        (["cat", "dog"], Json('["cat","dog"]')),
        (3, Json("3")),
    ],
)
def test_texts_are_alike_but_for_capitals_spaces_and_marks_around_them(label: Any, argument: Argument) -> None:
    wanted = line({"task": 0, "question": label}, tasks=("question-answering",))
    assert given(outcome(Task(1, "question-answering", {"question": argument}))) == labelled(wanted)


def test_other_words_are_another_text() -> None:
    wanted = line({"task": 0, "text": "Good morning"}, tasks=("translation",))
    assert given(outcome(Task(1, "translation", {"text": Text("Good evening")}))) != labelled(wanted)


def test_lines_without_labels_for_arguments_are_left_out() -> None:
    bare = Line(1, "…", graph=Graph(("translation",)))
    assert scores([bare], [outcome(Task(1, "translation", {"text": Text("…")}))]) is None
