"""What a model means, made valid; and what could not be, said."""

import json
from collections.abc import Mapping, Sequence

import pytest

from services.planner.llm.json_stream import RawTask
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import (
    SPLIT_LIMIT,
    Catalogue,
    Input,
    Json,
    Many,
    Modality,
    Parameter,
    Port,
    Reference,
    Spec,
    Task,
    Text,
    Value,
)
from services.planner.plan_check import complaints
from tests.support.plans import LITE, STANDARD, file, written

INPUTS: dict[str, Value] = {"file1": file("sign.png"), "file2": file("talk.wav")}

Fields = dict[str, object]


def task(name: str, number: int, given: Mapping[str, object] | None = None, **beside: object) -> Fields:
    return {"task": name, "id": number, "args": given or {}, **beside}


def drafted(
    *tasks: Fields, inputs: Mapping[str, Value] = INPUTS, catalogue: Catalogue = STANDARD, prior: Sequence[Task] = ()
) -> tuple[list[str], list[str]]:
    drafting = PlanRepairer(catalogue, inputs, prior)
    out = [task for fields in tasks for task in drafting.add(RawTask(fields))]
    out += drafting.close()
    assert not out or complaints([*prior, *out], catalogue, inputs) == []
    return written(out), [str(fault) for fault in drafting.complaints]


def plan(*tasks: Fields, inputs: Mapping[str, Value] = INPUTS, catalogue: Catalogue = STANDARD) -> list[str]:
    out, faults = drafted(*tasks, inputs=inputs, catalogue=catalogue)
    assert faults == []
    return out


def faults(*tasks: Fields, inputs: Mapping[str, Value] = INPUTS, catalogue: Catalogue = STANDARD) -> str:
    return "\n".join(drafted(*tasks, inputs=inputs, catalogue=catalogue)[1])


OCR = task("image-to-text", 0, {"image": "<file1>"})

# ---------------------------------------------------------------- what the paper's own system got wrong


@pytest.mark.parametrize(
    "tag", ["<GENERATED>-0", "<GENERATED-0>", "<resource>-0", "<text>-0", "<audio>-0", "<labels>-0"]
)
def test_a_tag_becomes_the_output_that_fits_and_is_never_handed_on_as_text(tag: str) -> None:
    assert plan(OCR, task("text-to-speech", 1, {"text": tag}))[1] == "text-to-speech(text=1.text)"


def test_what_was_translated_is_spoken_and_not_the_original() -> None:
    translation = task("translation", 0, {"text": "good day", "target_language": "fr"})
    assert plan(translation, task("text-to-speech", 1, {"text": "<GENERATED>-0"}, dep=[0]))[1] == (
        "text-to-speech(text=1.text)"
    )


def test_a_plan_that_speaks_of_an_error_is_planned() -> None:
    assert plan(task("text-to-speech", 0, {"text": 'an "error" in C:\\temp, don\'t'}))


@pytest.mark.parametrize(
    "value", [5, 1.5, True, None, [], {}, [[]], "<GENERATED>", "<GENERATED>-", "-", {"a": {"b": []}}]
)
def test_no_value_is_more_than_a_complaint(value: object) -> None:
    drafted(task("image-to-text", 0, {"image": value}), {"task": value}, {"task": "text-to-speech", "args": value})


def test_tasks_that_share_an_id_are_all_planned_and_refer_to_the_one_before() -> None:
    assert plan(OCR, task("text-to-speech", 0, {"text": "<text>-0"}), task("text-to-speech", 0, {"text": "hi"})) == [
        "image-to-text(image=file1)",
        "text-to-speech(text=1.text)",
        "text-to-speech(text='hi')",
    ]


def test_a_task_given_twice_in_a_row_is_planned_once() -> None:
    assert plan(OCR, OCR) == ["image-to-text(image=file1)"]


# ---------------------------------------------------------------- order and ids


def test_ids_are_fresh_and_follow_those_that_stand() -> None:
    standing = Task(7, "image-to-text", {"image": Input("file1")})
    drafting = PlanRepairer(STANDARD, INPUTS, [standing])
    assert drafting.add(RawTask(task("text-to-speech", 30, {"text": "<text>-7"}))) == [
        Task(8, "text-to-speech", {"text": Reference(7, "text")})
    ]


def test_a_task_that_stands_already_is_not_planned_again() -> None:
    standing = Task(7, "image-to-text", {"image": Input("file1")})
    assert drafted(OCR, task("text-to-speech", 1, {"text": "<text>-0"}), prior=[standing]) == (
        ["text-to-speech(text=7.text)"],
        [],
    )


def test_nothing_is_built_on_a_task_that_failed() -> None:
    prior = [
        Task(1, "image-to-text", {"image": Input("file1")}),
        Task(2, "summarization", {"text": Reference(1, "text")}),
    ]
    drafting = PlanRepairer(STANDARD, INPUTS, prior, failed=[1])
    assert drafting.add(RawTask(task("text-to-speech", 3, {"text": "<text>-2"}))) == []
    assert drafting.close() == []
    assert "refers to task 2, which is not there" in str(drafting.complaints[0])


def test_a_forward_reference_is_held_until_what_it_needs_is_out() -> None:
    drafting = PlanRepairer(STANDARD, INPUTS)
    assert drafting.add(RawTask(task("text-to-speech", 2, {"text": "<text>-1"}))) == []
    assert drafting.add(RawTask(task("summarization", 1, {"text": "<text>-0"}))) == []
    assert drafting.complaints == []
    out = drafting.add(RawTask(OCR))
    assert written(out) == ["image-to-text(image=file1)", "summarization(text=1.text)", "text-to-speech(text=2.text)"]


def test_a_missing_id_is_the_next_one() -> None:
    first: Fields = {"task": "image-to-text", "args": {"image": "<file1>"}}
    assert plan(first, {"task": "text-to-speech", "args": {"text": "<text>-0"}})[1] == "text-to-speech(text=1.text)"


def test_a_reference_is_inferred_from_a_dependency_and_a_dependency_from_a_reference() -> None:
    assert plan(OCR, task("text-to-speech", 1, dep=["0"]))[1] == "text-to-speech(text=1.text)"
    assert plan(OCR, task("text-to-speech", 1, {"text": "<text>-0"}, dep=[-1]))[1] == "text-to-speech(text=1.text)"
    assert plan(task("text-to-speech", 1, dep=[0]), OCR)[1] == "text-to-speech(text=1.text)"


def test_a_port_that_takes_many_is_filled_by_all_that_the_task_needs() -> None:
    hearing = task("automatic-speech-recognition", 1, {"audio": "<file2>"})
    comparing = task("sentence-similarity", 2, {"text": "x"}, dep=[0, 1])
    assert plan(OCR, hearing, comparing)[2] == "sentence-similarity(text='x', sentences=[1.text, 2.text])"


def test_a_reference_under_an_unknown_name_goes_where_it_fits() -> None:
    asking = task("question-answering", 1, {"question": "who?", "evidence": "<text>-0"})
    assert plan(OCR, asking)[1] == "question-answering(question='who?', context=1.text)"


def test_a_circle_is_broken_where_one_thing_fits_and_else_named() -> None:
    first = task("image-to-image", 0, {"image": "<image>-1", "instruction": "make it blue"})
    second = task("image-super-resolution", 1, {"image": "<image>-0"})
    assert plan(first, second) == [
        "image-to-image(image=file1, instruction='make it blue')",
        "image-super-resolution(image=1.image)",
    ]
    said = faults(task("text-to-speech", 0, {"text": "<text>-1"}), task("summarization", 1, {"text": "<text>-0"}))
    assert "task 0 (text-to-speech): it waits for task 1, which waits for it in turn (break the circle)" in said


def test_a_task_that_waits_for_itself_is_a_circle() -> None:
    assert "task 0 (text-to-speech): it waits for task 0" in faults(task("text-to-speech", 0, {"text": "<text>-0"}))


def test_a_reference_to_nothing_is_mended_if_one_thing_fits_and_else_named() -> None:
    assert plan(task("image-to-text", 0, {"image": "<image>-9"})) == ["image-to-text(image=file1)"]
    said = faults(task("text-to-speech", 0, {"text": "<text>-9"}))
    assert said == "task 0 (text-to-speech): port text refers to task 9, which is not there (refer to one that is)"


def test_what_waits_for_a_faulty_task_says_so() -> None:
    said = faults(task("image-to-text", 0, {"image": "/etc/passwd"}), task("text-to-speech", 1, {"text": "<text>-0"}))
    assert "task 1 (text-to-speech): it waits for task 0, which could not be planned (correct task 0)" in said


def test_of_a_cut_text_nothing_is_guessed() -> None:
    drafting = PlanRepairer(STANDARD, INPUTS)
    drafting.add(RawTask(task("image-to-text", 1, {"image": "<image>-0"})))
    assert drafting.close(cut=True) == []
    assert "it waits for task 0, which is not there" in str(drafting.complaints[0])


def test_a_task_given_again_takes_the_place_of_a_faulty_one_and_frees_what_waited() -> None:
    drafting = PlanRepairer(STANDARD, INPUTS)
    for fields in (task("telepathy", 0), task("text-to-speech", 1, {"text": "<text>-0"})):
        assert drafting.add(RawTask(fields)) == []
    assert drafting.close() == []
    assert [fault.wire_id for fault in drafting.complaints] == [0, 1]
    out = drafting.add(RawTask(OCR))
    assert written(out) == ["image-to-text(image=file1)", "text-to-speech(text=1.text)"]
    assert drafting.close() == []
    assert drafting.complaints == []


def test_what_is_out_stays_though_it_is_given_again_otherwise() -> None:
    drafting = PlanRepairer(STANDARD, INPUTS)
    drafting.add(RawTask(OCR))
    drafting.add(RawTask(task("telepathy", 1)))
    drafting.close()
    again = task("image-to-text", 0, {"image": "<file1>", "max_new_tokens": 9})
    assert drafting.add(RawTask(again)) == []
    assert written(drafting.add(RawTask(task("text-to-speech", 1, {"text": "<text>-0"})))) == [
        "text-to-speech(text=1.text)"
    ]


def test_a_split_that_would_pass_the_limit_is_left_out_whole() -> None:
    drafting = PlanRepairer(STANDARD, INPUTS, limit=2)
    assert drafting.add(RawTask(task("text-to-speech", 0, {"text": ["a", "b", "c"]}))) == []
    assert len(drafting.add(RawTask(task("text-to-speech", 1, {"text": ["a", "b"]})))) == 2
    assert str(drafting.complaints[0]).startswith("task 0 (text-to-speech): the plan has more than 2 tasks")


@pytest.mark.parametrize("limit", [1, 3])
def test_a_plan_ends_at_its_limit_and_says_so(limit: int) -> None:
    drafting = PlanRepairer(STANDARD, INPUTS, limit=limit)
    for number in range(5):
        drafting.add(RawTask(task("text-to-speech", number, {"text": str(number)})))
    assert len(drafting.tasks) == limit
    assert [str(fault) for fault in drafting.complaints] == [
        f"the plan has more than {limit} tasks (leave out what is not asked for)"
    ]


# ---------------------------------------------------------------- names


def test_a_task_of_another_name_is_found_by_what_it_takes_if_only_one_does() -> None:
    catalogue = {name: STANDARD[name] for name in ("text-to-speech", "automatic-speech-recognition", "summarization")}
    assert plan(task("speech-writing", 0, {"audio": "<file2>"}), catalogue=catalogue) == [
        "automatic-speech-recognition(audio=file2)"
    ]
    assert "no expert offers the task mind-reading (use one that is: automatic-speech" in faults(
        task("mind-reading", 0, {"audio": "<file2>"}), catalogue=catalogue
    )


@pytest.mark.parametrize(
    ("fields", "means"),
    [
        (task("image-to-text", 0, {"img": "<file1>"}), "image-to-text(image=file1)"),
        (task("image-to-text", 0, {"images": ["<file1>"]}), "image-to-text(image=file1)"),
        (task("image-to-text", 0, {"Input Image": "sign.png"}), "image-to-text(image=file1)"),
        (task("image-to-text", 0, {"image": "<file1>", "file": "<file1>"}), "image-to-text(image=file1)"),
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
def test_an_argument_finds_its_port_by_name_modality_or_what_it_is(fields: Fields, means: str) -> None:
    assert plan(fields) == [means]


def test_an_argument_that_nothing_is_for_is_named_with_what_there_is() -> None:
    said = faults(task("image-to-text", 0, {"image": "<file1>", "text": "in red"}))
    assert (
        said
        == "task 0 (image-to-text): image-to-text has no input port or parameter text (it has image; max_new_tokens)"
    )


# ---------------------------------------------------------------- what fits


def test_a_missing_or_wrong_argument_is_filled_by_the_one_thing_that_fits() -> None:
    assert plan(task("image-to-text", 0)) == ["image-to-text(image=file1)"]
    assert plan(task("image-to-text", 0, {"image": "the picture I sent"})) == ["image-to-text(image=file1)"]
    assert plan(task("image-to-text", 0, {"image": "<file2>"})) == ["image-to-text(image=file1)"]
    assert plan(task("image-to-text", 0, {"image": "<file9>"})) == ["image-to-text(image=file1)"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "the required port image of image-to-text is missing (give it a picture"),
        ({"image": "the picture"}, "port image takes a picture, but what it is given is text"),
        ({"image": "<file2>"}, "port image takes a picture, but input file2 is recording"),
        ({"image": "<file9>"}, "there is no input file9 (the run has file1, file2, file3)"),
    ],
)
def test_where_two_things_fit_nothing_is_guessed(given: Fields, says: str) -> None:
    assert says in faults(task("image-to-text", 0, given), inputs={**INPUTS, "file3": file("b.png")})


def test_an_output_of_the_wrong_kind_is_named_by_what_the_task_gives() -> None:
    said = faults(task("text-to-speech", 0, {"text": "hi"}), task("summarization", 1, {"text": "<text>-0"}))
    assert "port text takes a text, but task 0 (text-to-speech) gives recording (refer to a text" in said


def test_a_question_is_never_filled_by_a_document() -> None:
    given = {"context": "Bob did."}
    assert "the required port question" in faults(task("question-answering", 0, given), inputs={"a": file("a.txt")})


def test_the_output_named_like_the_port_comes_first() -> None:
    segmentation = task("image-segmentation", 0, {"image": "<file1>"})
    painting = task("inpainting", 1, {"image": "<file1>", "mask": "<image>-0", "text": "a cat"})
    assert plan(segmentation, painting)[1] == "inpainting(image=file1, mask=1.mask, text='a cat')"
    assert plan(segmentation, task("image-to-text", 1, {"image": "<mask>-0"}))[1] == "image-to-text(image=1.mask)"


@pytest.mark.parametrize(
    "where", ["/etc/passwd", "https://example.org/a.png", "file:///etc/hosts", "other.png", "<x.jpg>"]
)
@pytest.mark.parametrize(("name", "port"), [("image-to-text", "image"), ("summarization", "text")])
def test_a_path_or_an_address_is_never_let_through(where: str, name: str, port: str) -> None:
    said = faults(task(name, 0, {port: where}))
    assert f"port {port} is given a path or an address that is no input of the run (the run has file1, file2)" in said


def test_a_parameter_carries_no_path_and_no_reference() -> None:
    said = faults(OCR, task("text-to-speech", 1, {"text": "hi", "voice": "file:///etc/passwd", "language": "<text>-0"}))
    labels = {"labels": [{"a": "/etc/passwd"}], "image": "<file1>"}
    assert "labels is given a path" in faults(task("zero-shot-image-classification", 0, labels))
    assert "parameter voice is given a path or an address" in said
    assert "parameter language takes a value, not another task's output" in said


def test_words_around_a_reference_are_not_handed_on() -> None:
    said = faults(OCR, task("summarization", 1, {"text": "Summarize <text>-0 briefly"}))
    assert "port text is given <text>-0 within other words (give the reference alone, or the words themselves)" in said


def test_data_goes_into_a_port_for_data_and_nowhere_else() -> None:
    spec = Spec("draw", inputs=(Port("boxes", Modality.JSON),), outputs=(Port("image", Modality.IMAGE),))
    drafting = PlanRepairer({"draw": spec}, {})
    [out] = drafting.add(RawTask(task("draw", 0, {"boxes": [[1, 2], [3, 4]]})))
    assert out.arguments == {"boxes": Json("[[1, 2], [3, 4]]")}
    assert drafting.add(RawTask(task("draw", 1, {"boxes": [float("nan")]}))) == []
    assert "is not valid JSON" in str(drafting.complaints[0])
    assert "what it is given is data" in faults(task("summarization", 0, {"text": {"a": 1}}))


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, 3.0, 3),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "string"}, 5, "5"),
        ({"type": "boolean"}, "yes", True),
        ({"type": "array", "items": {"type": "string"}}, "cat, dog", ["cat", "dog"]),
        ({"type": "array", "items": {"type": "string"}}, "cat", ["cat"]),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"enum": ["fast", "slow"]}, "Fast", "fast"),
        ({"type": "object"}, {"a": 1}, {"a": 1}),
    ],
)
def test_a_parameter_is_gently_made_what_its_schema_asks_for(schema: object, given: object, kept: object) -> None:
    spec = Spec("t", outputs=(Port("text", Modality.TEXT),), parameters=(Parameter("x", json.dumps(schema)),))
    [out] = PlanRepairer({"t": spec}, {}).add(RawTask(task("t", 0, {"x": given})))
    assert json.loads(out.parameters_json) == {"x": kept}


@pytest.mark.parametrize("given", [7, "much", -1, float("nan"), float("inf"), 10**400, [0.1, 0.2]])
def test_a_parameter_that_cannot_be_right_is_named(given: object) -> None:
    said = faults(task("object-detection", 0, {"image": "<file1>", "threshold": given}))
    assert said.startswith("task 0 (object-detection): parameter threshold: ")


# ---------------------------------------------------------------- several things at once


def test_several_things_for_a_port_that_takes_one_make_several_tasks() -> None:
    inputs = {"a": file("a.png"), "b": file("b.png"), "c": file("c.png")}
    reading = task("image-to-text", 0, {"image": ["<a>", "<b>", "<c>"]})
    speaking = task("text-to-speech", 1, {"text": "<text>-0"})
    comparing = task("sentence-similarity", 2, {"text": "x", "sentences": "<text>-0"})
    assert plan(reading, speaking, comparing, inputs=inputs) == [
        *(f"image-to-text(image={name})" for name in "abc"),
        *(f"text-to-speech(text={number}.text)" for number in (1, 2, 3)),
        "sentence-similarity(text='x', sentences=[1.text, 2.text, 3.text])",
    ]


def test_a_list_of_tags_in_one_text_is_a_list() -> None:
    speaking = task("text-to-speech", 2, {"text": "<text>-0, <text>-1"})
    hearing = task("automatic-speech-recognition", 1, {"audio": "<file2>"})
    assert plan(OCR, hearing, speaking)[2:] == ["text-to-speech(text=1.text)", "text-to-speech(text=2.text)"]


def test_ports_with_equally_many_things_are_taken_in_step() -> None:
    asking = task("visual-question-answering", 0, {"image": ["<a>", "<b>"], "question": ["who?", "where?"]})
    assert plan(asking, inputs={"a": file("a.png"), "b": file("b.png")}) == [
        "visual-question-answering(image=a, question='who?')",
        "visual-question-answering(image=b, question='where?')",
    ]
    asking["args"] = {"image": ["<a>", "<b>"], "question": ["who?", "where?", "why?"]}
    assert "given different numbers of things: image 2 and question 3 (write one task for each)" in faults(
        asking, inputs={"a": file("a.png"), "b": file("b.png")}
    )


def test_one_task_becomes_only_so_many() -> None:
    texts = [f"number {count}" for count in range(SPLIT_LIMIT + 1)]
    assert len(plan(task("text-to-speech", 0, {"text": texts[:-1]}))) == SPLIT_LIMIT
    assert "port text is given 33 things, and one task becomes 32 at most" in faults(task("tts", 0, {"text": texts}))


def test_a_list_for_a_port_that_takes_many_stays_one_task() -> None:
    [out] = PlanRepairer(STANDARD, {}).add(
        RawTask(task("sentence-similarity", 0, {"text": "a", "sentences": ["b", "c"]}))
    )
    assert out.arguments == {"text": Text("a"), "sentences": Many((Text("b"), Text("c")))}


# ---------------------------------------------------------------- the last gate, and the size of things


def test_nothing_leaves_that_the_check_of_every_plan_would_refuse() -> None:
    drafting = PlanRepairer({"one": Spec("another")}, {})
    assert drafting.add(RawTask(task("one", 0))) == []
    assert "no expert offers the task another" in str(drafting.complaints[0])


@pytest.mark.timeout(10)
def test_a_thousand_tasks_that_wait_for_each_other_are_settled_in_bounded_time() -> None:
    chain = [task("summarization", number, {"text": f"<text>-{number + 1}"}) for number in range(999)]
    out, said = drafted(*chain, task("summarization", 999, {"text": "hello"}))
    assert len(out) == 1_000
    assert said == []
    circle = [task("summarization", number, {"text": f"<text>-{(number + 1) % 1_000}"}) for number in range(1_000)]
    out, said = drafted(*circle)
    assert out == []
    assert len(said) == 1_000


def test_a_plan_for_the_lite_house_is_a_plan() -> None:
    assert plan(OCR, task("tts", 1, {"text": "<text>-0"}), catalogue=LITE) == [
        "image-to-text(image=file1)",
        "text-to-speech(text=1.text)",
    ]
