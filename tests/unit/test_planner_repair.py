"""Repair of LLM plans, and faults that cannot be repaired."""

import json
from collections.abc import Mapping, Sequence

import pytest

from services.planner.llm.json_stream import RawTask
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import SPLIT_LIMIT, Input, Json, Many, Reference, Task, Text, Value
from services.planner.plan_assembler import PlanAssembler
from services.planner.plan_check import find_faults
from services.planner.task_spec import Catalogue, Modality, Parameter, Port, Spec
from tests.support.plans import LITE, STANDARD, file, notation

INPUTS: dict[str, Value] = {"file1": file("sign.png"), "file2": file("talk.wav")}

Fields = dict[str, object]


def task(name: str, number: int, arguments: Mapping[str, object] | None = None, **others: object) -> Fields:
    return {"task": name, "id": number, "args": arguments or {}, **others}


def repair(
    *tasks: Fields, inputs: Mapping[str, Value] = INPUTS, catalogue: Catalogue = STANDARD, prior: Sequence[Task] = ()
) -> tuple[list[str], list[str]]:
    repairer = PlanRepairer(catalogue, inputs, PlanAssembler(prior))
    out = [task for fields in tasks for task in repairer.add(RawTask(fields))]
    out += repairer.close()
    assert not out or find_faults([*prior, *out], catalogue, inputs) == []
    return notation(out), [str(fault) for fault in repairer.faults]


def plan(*tasks: Fields, inputs: Mapping[str, Value] = INPUTS, catalogue: Catalogue = STANDARD) -> list[str]:
    out, faults = repair(*tasks, inputs=inputs, catalogue=catalogue)
    assert faults == []
    return out


def faults(*tasks: Fields, inputs: Mapping[str, Value] = INPUTS, catalogue: Catalogue = STANDARD) -> str:
    return "\n".join(repair(*tasks, inputs=inputs, catalogue=catalogue)[1])


OCR = task("image-to-text", 0, {"image": "<file1>"})

# ---------------------------------------------------------------- failures of the paper's own system


@pytest.mark.parametrize(
    "tag", ["<GENERATED>-0", "<GENERATED-0>", "<resource>-0", "<text>-0", "<audio>-0", "<labels>-0"]
)
def test_reference_tag_becomes_matching_output(tag: str) -> None:
    assert plan(OCR, task("text-to-speech", 1, {"text": tag}))[1] == "text-to-speech(text=1.text)"


def test_untyped_tag_refers_to_the_dependency() -> None:
    translation = task("translation", 0, {"text": "good day", "target_language": "fr"})
    assert plan(translation, task("text-to-speech", 1, {"text": "<GENERATED>-0"}, dep=[0]))[1] == (
        "text-to-speech(text=1.text)"
    )


def test_text_with_the_word_error_is_planned() -> None:
    assert plan(task("text-to-speech", 0, {"text": 'an "error" in C:\\temp, don\'t'}))


@pytest.mark.parametrize(
    "value", [5, 1.5, True, None, [], {}, [[]], "<GENERATED>", "<GENERATED>-", "-", {"a": {"b": []}}]
)
def test_any_value_yields_at_most_a_fault(value: object) -> None:
    repair(task("image-to-text", 0, {"image": value}), {"task": value}, {"task": "text-to-speech", "args": value})


def test_tasks_with_equal_ids_are_all_planned() -> None:
    assert plan(OCR, task("text-to-speech", 0, {"text": "<text>-0"}), task("text-to-speech", 0, {"text": "hi"})) == [
        "image-to-text(image=file1)",
        "text-to-speech(text=1.text)",
        "text-to-speech(text='hi')",
    ]


def test_repeated_task_is_planned_once() -> None:
    assert plan(OCR, OCR) == ["image-to-text(image=file1)"]


# ---------------------------------------------------------------- order and ids


def test_new_ids_follow_those_of_prior_tasks() -> None:
    prior_task = Task(7, "image-to-text", {"image": Input("file1")})
    repairer = PlanRepairer(STANDARD, INPUTS, PlanAssembler([prior_task]))
    assert repairer.add(RawTask(task("text-to-speech", 30, {"text": "<text>-7"}))) == [
        Task(8, "text-to-speech", {"text": Reference(7, "text")})
    ]


def test_prior_task_is_not_planned_again() -> None:
    prior_task = Task(7, "image-to-text", {"image": Input("file1")})
    assert repair(OCR, task("text-to-speech", 1, {"text": "<text>-0"}), prior=[prior_task]) == (
        ["text-to-speech(text=7.text)"],
        [],
    )


def test_reference_to_a_failed_task_is_a_fault() -> None:
    prior = [
        Task(1, "image-to-text", {"image": Input("file1")}),
        Task(2, "summarization", {"text": Reference(1, "text")}),
    ]
    repairer = PlanRepairer(STANDARD, INPUTS, PlanAssembler(prior, failed=[1]))
    assert repairer.add(RawTask(task("text-to-speech", 3, {"text": "<text>-2"}))) == []
    assert repairer.close() == []
    assert "refers to task 2, which is not there" in str(repairer.faults[0])


def test_forward_reference_waits_for_its_task() -> None:
    repairer = PlanRepairer(STANDARD, INPUTS)
    assert repairer.add(RawTask(task("text-to-speech", 2, {"text": "<text>-1"}))) == []
    assert repairer.add(RawTask(task("summarization", 1, {"text": "<text>-0"}))) == []
    assert repairer.faults == []
    out = repairer.add(RawTask(OCR))
    assert notation(out) == ["image-to-text(image=file1)", "summarization(text=1.text)", "text-to-speech(text=2.text)"]


def test_missing_id_is_the_next_number() -> None:
    first: Fields = {"task": "image-to-text", "args": {"image": "<file1>"}}
    assert plan(first, {"task": "text-to-speech", "args": {"text": "<text>-0"}})[1] == "text-to-speech(text=1.text)"


def test_references_and_dependencies_are_inferred_from_each_other() -> None:
    assert plan(OCR, task("text-to-speech", 1, dep=["0"]))[1] == "text-to-speech(text=1.text)"
    assert plan(OCR, task("text-to-speech", 1, {"text": "<text>-0"}, dep=[-1]))[1] == "text-to-speech(text=1.text)"
    assert plan(task("text-to-speech", 1, dep=[0]), OCR)[1] == "text-to-speech(text=1.text)"


def test_list_port_is_filled_by_all_dependencies() -> None:
    transcribing = task("automatic-speech-recognition", 1, {"audio": "<file2>"})
    comparing = task("sentence-similarity", 2, {"text": "x"}, dep=[0, 1])
    assert plan(OCR, transcribing, comparing)[2] == "sentence-similarity(text='x', sentences=[1.text, 2.text])"


def test_reference_with_unknown_port_name_fills_matching_port() -> None:
    asking = task("question-answering", 1, {"question": "who?", "evidence": "<text>-0"})
    assert plan(OCR, asking)[1] == "question-answering(question='who?', context=1.text)"


def test_cycle_is_resolved_by_the_only_matching_input_or_reported() -> None:
    first = task("image-to-image", 0, {"image": "<image>-1", "instruction": "make it blue"})
    second = task("image-super-resolution", 1, {"image": "<image>-0"})
    assert plan(first, second) == [
        "image-to-image(image=file1, instruction='make it blue')",
        "image-super-resolution(image=1.image)",
    ]
    message = faults(task("text-to-speech", 0, {"text": "<text>-1"}), task("summarization", 1, {"text": "<text>-0"}))
    assert "task 0 (text-to-speech): it waits for task 1, which waits for it in turn (break the circle)" in message


def test_self_reference_is_reported_as_cycle() -> None:
    assert "task 0 (text-to-speech): it waits for task 0" in faults(task("text-to-speech", 0, {"text": "<text>-0"}))


def test_unknown_reference_is_resolved_by_the_only_matching_input_or_reported() -> None:
    assert plan(task("image-to-text", 0, {"image": "<image>-9"})) == ["image-to-text(image=file1)"]
    message = faults(task("text-to-speech", 0, {"text": "<text>-9"}))
    assert message == "task 0 (text-to-speech): port text refers to task 9, which is not there (refer to one that is)"


def test_dependent_of_an_invalid_task_is_reported() -> None:
    message = faults(
        task("image-to-text", 0, {"image": "/etc/passwd"}), task("text-to-speech", 1, {"text": "<text>-0"})
    )
    assert "task 1 (text-to-speech): it waits for task 0, which could not be planned (correct task 0)" in message


def test_no_reference_is_guessed_in_a_truncated_plan() -> None:
    repairer = PlanRepairer(STANDARD, INPUTS)
    repairer.add(RawTask(task("image-to-text", 1, {"image": "<image>-0"})))
    assert repairer.close(cut=True) == []
    assert "it waits for task 0, which is not there" in str(repairer.faults[0])


def test_corrected_task_replaces_invalid_one_and_releases_its_dependents() -> None:
    repairer = PlanRepairer(STANDARD, INPUTS)
    for fields in (task("telepathy", 0), task("text-to-speech", 1, {"text": "<text>-0"})):
        assert repairer.add(RawTask(fields)) == []
    assert repairer.close() == []
    assert [fault.task_id for fault in repairer.faults] == [0, 1]
    out = repairer.add(RawTask(OCR))
    assert notation(out) == ["image-to-text(image=file1)", "text-to-speech(text=1.text)"]
    assert repairer.close() == []
    assert repairer.faults == []


def test_emitted_task_is_not_changed_by_a_later_version() -> None:
    repairer = PlanRepairer(STANDARD, INPUTS)
    repairer.add(RawTask(OCR))
    repairer.add(RawTask(task("telepathy", 1)))
    repairer.close()
    changed = task("image-to-text", 0, {"image": "<file1>", "max_new_tokens": 9})
    assert repairer.add(RawTask(changed)) == []
    assert notation(repairer.add(RawTask(task("text-to-speech", 1, {"text": "<text>-0"})))) == [
        "text-to-speech(text=1.text)"
    ]


def test_split_beyond_the_limit_is_omitted_completely() -> None:
    repairer = PlanRepairer(STANDARD, INPUTS, limit=2)
    assert repairer.add(RawTask(task("text-to-speech", 0, {"text": ["a", "b", "c"]}))) == []
    assert len(repairer.add(RawTask(task("text-to-speech", 1, {"text": ["a", "b"]})))) == 2
    assert str(repairer.faults[0]).startswith("task 0 (text-to-speech): the plan has more than 2 tasks")


@pytest.mark.parametrize("limit", [1, 3])
def test_plan_ends_at_the_task_limit_with_fault(limit: int) -> None:
    repairer = PlanRepairer(STANDARD, INPUTS, limit=limit)
    for number in range(5):
        repairer.add(RawTask(task("text-to-speech", number, {"text": str(number)})))
    assert len(repairer.tasks) == limit
    assert [str(fault) for fault in repairer.faults] == [
        f"the plan has more than {limit} tasks (leave out what is not asked for)"
    ]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (task("image-to-text", 0, {"img": "<file1>"}), "image-to-text(image=file1)"),
        (task("image-to-text", 0, {"images": ["<file1>"]}), "image-to-text(image=file1)"),
        (task("image-to-text", 0, {"Input Image": "sign.png"}), "image-to-text(image=file1)"),
        ({"task": "image-to-text", "args": ["<file1>"]}, "image-to-text(image=file1)"),
        ({"task": "image-to-text", "args": "file1"}, "image-to-text(image=file1)"),
        (task("image-to-text", 0, {"image": [None]}), "image-to-text(image=file1)"),
        (task("text-to-speech", 0, {"text": 42}), "text-to-speech(text='42')"),
        (
            task("visual-question-answering", 0, {"image": "<file1>", "text": "who?"}),
            "visual-question-answering(image=file1, question='who?')",
        ),
        (
            task("question-answering", 0, {"query": "who?", "text": "Bob did."}),
            "question-answering(question='who?', context='Bob did.')",
        ),
        (
            task("text-to-image", 0, {"prompt": "a cat", "steps": 20}),
            "text-to-image(text='a cat'; num_inference_steps=20)",
        ),
        (
            task("sentence-similarity", 0, {"text1": "a", "text2": "b"}),
            "sentence-similarity(text='a', sentences=['b'])",
        ),
        (
            task("image-to-image", 0, {"image": "<file1>", "style": "as a sketch"}),
            "image-to-image(image=file1, instruction='as a sketch')",
        ),
    ],
)
def test_argument_is_assigned_to_port_by_name_or_value(fields: Fields, expected: str) -> None:
    assert plan(fields) == [expected]


def test_fault_of_an_unknown_argument_lists_the_known_ones() -> None:
    message = faults(task("image-to-text", 0, {"image": "<file1>", "text": "in red"}))
    assert (
        message
        == "task 0 (image-to-text): image-to-text has no input port or parameter text (it has image; max_new_tokens)"
    )


# ---------------------------------------------------------------- matching inputs


def test_missing_or_invalid_argument_is_filled_by_the_only_matching_input() -> None:
    assert plan(task("image-to-text", 0)) == ["image-to-text(image=file1)"]
    assert plan(task("image-to-text", 0, {"image": "the picture I sent"})) == ["image-to-text(image=file1)"]
    assert plan(task("image-to-text", 0, {"image": "<file2>"})) == ["image-to-text(image=file1)"]
    assert plan(task("image-to-text", 0, {"image": "<file9>"})) == ["image-to-text(image=file1)"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "the required port image of image-to-text is missing (give it a picture"),
        ({"image": "the picture"}, "port image takes a picture, but what it is given is text"),
        ({"image": "<file2>"}, "port image takes a picture, but input file2 is recording"),
        ({"image": "<file9>"}, "there is no input file9 (the run has file1, file2, file3)"),
    ],
)
def test_no_argument_is_guessed_if_two_inputs_match(arguments: Fields, message: str) -> None:
    assert message in faults(task("image-to-text", 0, arguments), inputs={**INPUTS, "file3": file("b.png")})


def test_fault_names_the_modality_of_a_mismatched_output() -> None:
    message = faults(task("text-to-speech", 0, {"text": "hi"}), task("summarization", 1, {"text": "<text>-0"}))
    assert "port text takes a text, but task 0 (text-to-speech) gives recording (refer to a text" in message


def test_question_port_is_not_filled_by_a_document() -> None:
    arguments = {"context": "Bob did."}
    assert "the required port question" in faults(task("question-answering", 0, arguments), inputs={"a": file("a.txt")})


def test_output_with_the_name_of_the_port_is_preferred() -> None:
    segmentation = task("image-segmentation", 0, {"image": "<file1>"})
    painting = task("inpainting", 1, {"image": "<file1>", "mask": "<image>-0", "text": "a cat"})
    assert plan(segmentation, painting)[1] == "inpainting(image=file1, mask=1.mask, text='a cat')"
    assert plan(segmentation, task("image-to-text", 1, {"image": "<mask>-0"}))[1] == "image-to-text(image=1.mask)"


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "https://example.org/a.png", "file:///etc/hosts", "other.png", "<x.jpg>"]
)
@pytest.mark.parametrize(("name", "port"), [("image-to-text", "image"), ("summarization", "text")])
def test_path_or_url_argument_is_rejected(location: str, name: str, port: str) -> None:
    message = faults(task(name, 0, {port: location}))
    assert (
        f"port {port} is given a path or an address that is no input of the run (the run has file1, file2)" in message
    )


def test_path_or_reference_in_a_parameter_is_rejected() -> None:
    message = faults(
        OCR, task("text-to-speech", 1, {"text": "hi", "voice": "file:///etc/passwd", "language": "<text>-0"})
    )
    labels = {"labels": [{"a": "/etc/passwd"}], "image": "<file1>"}
    assert "labels is given a path" in faults(task("zero-shot-image-classification", 0, labels))
    assert "parameter voice is given a path or an address" in message
    assert "parameter language takes a value, not another task's output" in message


def test_text_around_a_reference_is_rejected() -> None:
    message = faults(OCR, task("summarization", 1, {"text": "Summarize <text>-0 briefly"}))
    assert (
        "port text is given <text>-0 within other words (give the reference alone, or the words themselves)" in message
    )


def test_json_value_fills_only_json_ports() -> None:
    spec = Spec("draw", inputs=(Port("boxes", Modality.JSON),), outputs=(Port("image", Modality.IMAGE),))
    repairer = PlanRepairer({"draw": spec}, {})
    [out] = repairer.add(RawTask(task("draw", 0, {"boxes": [[1, 2], [3, 4]]})))
    assert out.arguments == {"boxes": Json("[[1, 2], [3, 4]]")}
    assert repairer.add(RawTask(task("draw", 1, {"boxes": [float("nan")]}))) == []
    assert "is not valid JSON" in str(repairer.faults[0])
    assert "what it is given is data" in faults(task("summarization", 0, {"text": {"a": 1}}))


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("schema", "arguments", "expected"),
    [
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, 3.0, 3),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "array", "items": {"type": "string"}}, "cat, dog", ["cat", "dog"]),
        ({"type": "array", "items": {"type": "string"}}, "cat", ["cat"]),
        ({"type": "object"}, {"a": 1}, {"a": 1}),
    ],
)
def test_parameter_is_converted_to_its_schema(schema: object, arguments: object, expected: object) -> None:
    spec = Spec("t", outputs=(Port("text", Modality.TEXT),), parameters=(Parameter("x", json.dumps(schema)),))
    [out] = PlanRepairer({"t": spec}, {}).add(RawTask(task("t", 0, {"x": arguments})))
    assert json.loads(out.parameters_json) == {"x": expected}


@pytest.mark.parametrize("arguments", [7, "much", -1, float("nan"), float("inf"), 10**400, [0.1, 0.2]])
def test_invalid_parameter_is_a_fault(arguments: object) -> None:
    message = faults(task("object-detection", 0, {"image": "<file1>", "threshold": arguments}))
    assert message.startswith("task 0 (object-detection): parameter threshold: ")


# ---------------------------------------------------------------- several values


def test_several_values_for_a_single_port_become_several_tasks() -> None:
    inputs = {"a": file("a.png"), "b": file("b.png"), "c": file("c.png")}
    reading = task("image-to-text", 0, {"image": ["<a>", "<b>", "<c>"]})
    speaking = task("text-to-speech", 1, {"text": "<text>-0"})
    comparing = task("sentence-similarity", 2, {"text": "x", "sentences": "<text>-0"})
    assert plan(reading, speaking, comparing, inputs=inputs) == [
        *(f"image-to-text(image={name})" for name in "abc"),
        *(f"text-to-speech(text={number}.text)" for number in (1, 2, 3)),
        "sentence-similarity(text='x', sentences=[1.text, 2.text, 3.text])",
    ]


def test_comma_separated_tags_are_a_list() -> None:
    speaking = task("text-to-speech", 2, {"text": "<text>-0, <text>-1"})
    transcribing = task("automatic-speech-recognition", 1, {"audio": "<file2>"})
    assert plan(OCR, transcribing, speaking)[2:] == ["text-to-speech(text=1.text)", "text-to-speech(text=2.text)"]


def test_ports_with_equal_numbers_of_values_are_paired() -> None:
    asking = task("visual-question-answering", 0, {"image": ["<a>", "<b>"], "question": ["who?", "where?"]})
    assert plan(asking, inputs={"a": file("a.png"), "b": file("b.png")}) == [
        "visual-question-answering(image=a, question='who?')",
        "visual-question-answering(image=b, question='where?')",
    ]
    asking["args"] = {"image": ["<a>", "<b>"], "question": ["who?", "where?", "why?"]}
    assert "given different numbers of things: image 2 and question 3 (write one task for each)" in faults(
        asking, inputs={"a": file("a.png"), "b": file("b.png")}
    )


def test_split_of_a_task_is_limited() -> None:
    texts = [f"number {count}" for count in range(SPLIT_LIMIT + 1)]
    assert len(plan(task("text-to-speech", 0, {"text": texts[:-1]}))) == SPLIT_LIMIT
    assert "port text is given 33 things, and one task becomes 32 at most" in faults(task("tts", 0, {"text": texts}))


def test_list_for_a_list_port_stays_one_task() -> None:
    [out] = PlanRepairer(STANDARD, {}).add(
        RawTask(task("sentence-similarity", 0, {"text": "a", "sentences": ["b", "c"]}))
    )
    assert out.arguments == {"text": Text("a"), "sentences": Many((Text("b"), Text("c")))}


# ---------------------------------------------------------------- plan check and size


def test_emitted_tasks_pass_the_plan_check() -> None:
    repairer = PlanRepairer({"one": Spec("another")}, {})
    assert repairer.add(RawTask(task("one", 0))) == []
    assert "no expert offers the task another" in str(repairer.faults[0])


@pytest.mark.timeout(10)
def test_thousand_dependent_tasks_are_resolved_in_bounded_time() -> None:
    chain = [task("summarization", number, {"text": f"<text>-{number + 1}"}) for number in range(999)]
    out, message = repair(*chain, task("summarization", 999, {"text": "hello"}))
    assert len(out) == 1_000
    assert message == []
    circle = [task("summarization", number, {"text": f"<text>-{(number + 1) % 1_000}"}) for number in range(1_000)]
    out, message = repair(*circle)
    assert out == []
    assert len(message) == 1_000


def test_plan_with_the_lite_catalogue_is_valid() -> None:
    assert plan(OCR, task("tts", 1, {"text": "<text>-0"}), catalogue=LITE) == [
        "image-to-text(image=file1)",
        "text-to-speech(text=1.text)",
    ]
