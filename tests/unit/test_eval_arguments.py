from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from services.planner.plan import Argument, Decision, Draft, Input, Json, Many, Reference, Task, Text
from services.planner.request import Request
from tests.eval import arguments
from tests.eval.argument_values import comparable
from tests.eval.comparison import compare
from tests.eval.lines import Answer, Graph, Line
from tests.eval.planners import Outcome
from tests.eval.tools import Spelling
from tests.support.plans import inputs


def answer(*given: Mapping[str, Any], tasks: tuple[str, ...]) -> Answer:
    return Answer(Graph(tasks), given)


def outcome(*tasks: Task) -> Outcome:
    return Outcome(Draft(tasks, (), Decision("embedded", "")), Request(inputs=inputs(["a.png", "b.png"])))


def scores(planned: Outcome, *answers: Answer) -> dict[str, Any] | None:
    line = Line(1, "…", label=answers[0], accept=answers[1:])
    return arguments.scores(compare([line], [planned], Spelling.HUB))


def same(planned: Outcome, expected: Answer) -> bool:
    tasks, label = comparable(planned, expected)
    return Counter(tasks) == Counter(label)


def test_files_outputs_texts_and_parameters_are_compared() -> None:
    expected = Answer(
        Graph(("image-to-text", "translation"), (("image-to-text", "translation"),)),
        ({"task": 0, "image": {"file": "a.png"}}, {"task": 1, "text": {"output_of": 0}, "target_language": "French"}),
    )
    planned = outcome(
        Task(4, "image-to-text", {"image": Input("file1")}),
        Task(5, "translation", {"text": Reference(4, "text")}, parameters_json='{"target_language": "fr"}'),
    )
    assert scores(planned, expected) == {"n": 1, "argument_f1": 100.0, "t_f1": 100.0, "v_f1": 100.0, "right": 100.0}


def test_wrong_file_on_the_right_port_counts_in_t_f1_only() -> None:
    expected = answer({"task": 0, "image": {"file": "a.png"}}, tasks=("image-to-text",))
    planned = outcome(Task(1, "image-to-text", {"image": Input("file2")}))
    assert scores(planned, expected) == {"n": 1, "argument_f1": 0.0, "t_f1": 100.0, "v_f1": 0.0, "right": 0.0}


def test_right_text_on_the_wrong_port_counts_in_v_f1_only() -> None:
    expected = answer({"task": 0, "question": "Who?"}, tasks=("question-answering",))
    planned = outcome(Task(1, "question-answering", {"context": Text("Who?")}))
    assert scores(planned, expected) == {"n": 1, "argument_f1": 0.0, "t_f1": 0.0, "v_f1": 100.0, "right": 0.0}


def test_superfluous_arguments_lower_the_score() -> None:
    expected = answer({"task": 0, "image": {"file": "a.png"}}, tasks=("image-to-text",))
    planned = outcome(Task(1, "image-to-text", {"image": Input("file1")}, parameters_json='{"max_new_tokens": 9}'))
    found = scores(planned, expected)
    assert found
    assert found["argument_f1"] == 66.67
    assert found["right"] == 0.0


def test_language_that_follows_from_the_plan_is_optional() -> None:
    expected = answer({"task": 0, "text": "Hello"}, tasks=("text-to-speech",))
    spoken = Task(1, "text-to-speech", {"text": Text("Hello")}, parameters_json='{"language": "en"}')
    assert same(outcome(spoken), expected)
    stand_ins = answer({"task": 0, "text": "Hello", "language": "German"}, tasks=("text-to-speech",))
    assert not same(outcome(spoken), stand_ins)


def test_arguments_are_compared_within_their_task() -> None:
    tasks = ("translation", "translation")
    expected = answer(
        {"task": 0, "text": "Hello", "target_language": "French"},
        {"task": 1, "text": "Bye", "target_language": "German"},
        tasks=tasks,
    )
    crossed = outcome(
        Task(1, "translation", {"text": Text("Hello")}, parameters_json='{"target_language": "de"}'),
        Task(2, "translation", {"text": Text("Bye")}, parameters_json='{"target_language": "fr"}'),
    )
    found = scores(crossed, expected)
    assert found
    assert found["argument_f1"] == 100.0
    assert found["right"] == 0.0


def test_most_similar_of_several_right_plans_is_used() -> None:
    described = answer({"task": 0, "image": {"file": "a.png"}}, tasks=("image-to-text",))
    asked = answer({"task": 0, "image": {"file": "a.png"}, "question": "Who?"}, tasks=("visual-question-answering",))
    planned = outcome(
        Task(1, "visual-question-answering", {"image": Input("file1"), "question": Text("Who?")}),
    )
    found = scores(planned, described, asked)
    assert found
    assert found["right"] == 100


def test_every_file_of_a_list_counts() -> None:
    expected = answer(
        {"task": 0, "sentences": [{"file": "a.png"}, {"file": "b.png"}]},
        tasks=("sentence-similarity",),
    )
    planned = Task(1, "sentence-similarity", {"sentences": Many((Input("file2"), Input("file1")))})
    assert same(outcome(planned), expected)


def test_a_list_for_a_parameter_is_one_value_in_any_order() -> None:
    expected = answer({"task": 0, "candidate_labels": ["Cat", "dog"]}, tasks=("zero-shot-classification",))
    planned = Task(1, "zero-shot-classification", parameters_json='{"candidate_labels": ["dog", "cat"]}')
    assert same(outcome(planned), expected)
    fewer = Task(1, "zero-shot-classification", parameters_json='{"candidate_labels": ["dog"]}')
    assert not same(outcome(fewer), expected)


@pytest.mark.parametrize(
    ("label", "argument"),
    [
        ("What is the total?", Text(" what is  the TOTAL")),
        ("Bonjour", Text("“Bonjour”.")),
        ("A red fox", Text("red fox, please")),
        (3, Json("3.0")),
        (True, Json("true")),
    ],
)
def test_texts_are_compared_without_case_spaces_and_surrounding_punctuation(label: Any, argument: Argument) -> None:
    expected = answer({"task": 0, "question": label}, tasks=("question-answering",))
    assert same(outcome(Task(1, "question-answering", {"question": argument})), expected)


@pytest.mark.parametrize(
    ("one", "other"), [("Good morning", "Good evening"), ("Theatre", "atre"), ("pleased", "d"), ("3", "4")]
)
def test_different_words_are_a_different_text(one: str, other: str) -> None:
    expected = answer({"task": 0, "text": one}, tasks=("translation",))
    assert not same(outcome(Task(1, "translation", {"text": Text(other)})), expected)


def test_lines_without_labelled_arguments_are_omitted() -> None:
    planned = outcome(Task(1, "translation", {"text": Text("…")}))
    assert scores(planned, Answer(Graph(("translation",)))) is None
