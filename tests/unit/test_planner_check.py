"""Faults of invalid plans."""

import pytest

from services.planner.plan import HARD_LIMIT, Input, Json, Many, Reference, Task, Text, Unset, Value
from services.planner.plan_check import MAX_REFERENCES, Fault, find_faults, schema_violation
from services.planner.task_spec import Modality, Parameter, Port, Spec
from tests.support.plans import STANDARD, file

INPUTS: dict[str, Value] = {"file1": file("sign.png"), "file2": file("talk.wav"), "file3": file("notes.txt")}
OCR = Task(1, "image-to-text", {"image": Input("file1")})


def fault_texts(*tasks: Task) -> list[str]:
    return [str(fault) for fault in find_faults(tasks, STANDARD, INPUTS)]


@pytest.mark.parametrize(
    "tasks",
    [
        (OCR,),
        (OCR, Task(2, "text-to-speech", {"text": Reference(1, "text")}, '{"speed":1.5}')),
        (Task(7, "summarization", {"text": Input("file3")}),),
        (Task(1, "image-to-text", {"image": file("scan.pdf")}),),
        (Task(1, "table-question-answering", {"question": Text("who?"), "table": file("a.csv")}),),
        (Task(1, "sentence-similarity", {"text": Text("a"), "sentences": Many((Text("b"), Input("file3")))}),),
        (Task(1, "image-to-image", {"image": Input("file1")}),),
    ],
)
def test_valid_plan_has_no_faults(tasks: tuple[Task, ...]) -> None:
    assert fault_texts(*tasks) == []


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ((), "the plan has no task"),
        ((Task(1, "telepathy"),), "task 1: no expert offers the task telepathy"),
        ((Task(0, "image-to-text", {"image": Input("file1")}),), "0 is no task id"),
        ((OCR, OCR), "task 1: its id is given twice"),
        ((Task(2, "image-to-text", {"image": Input("file1")}), OCR), "task 1: its id is smaller"),
        ((Task(1, "image-to-text"),), "the required port image of image-to-text is missing"),
        ((Task(1, "image-to-text", {"image": Input("file1"), "sound": Text("x")}),), "has no input port sound"),
        ((Task(1, "image-to-text", {"image": Input("file9")}),), "there is no input file9 (the run has file1, file2"),
        ((Task(1, "image-to-text", {"image": Input("file2")}),), "takes a picture, but input file2 is recording"),
        ((Task(1, "image-to-text", {"image": Text("x")}),), "takes a picture, but what it is given is text"),
        ((Task(1, "image-to-text", {"image": Unset()}),), "port image is given nothing"),
        ((Task(1, "image-to-text", {"image": Many((Input("file1"),))}),), "takes one picture, not a list"),
        (
            (Task(1, "sentence-similarity", {"text": Text("a"), "sentences": Many(())}),),
            "the list for port sentences is empty",
        ),
        ((OCR, Task(2, "text-to-speech", {"text": Reference(9, "text")})), "refers to task 9, which is not there"),
        (
            (OCR, Task(2, "text-to-speech", {"text": Reference(1, "sound")})),
            "task 1 (image-to-text) has no output sound",
        ),
        (
            (OCR, Task(2, "text-to-speech", {"text": Reference(1, "details")})),
            "port text takes a text, but details of task 1 is JSON",
        ),
        (
            (
                Task(1, "text-to-speech", {"text": Reference(2, "text")}),
                Task(2, "image-to-text", {"image": Input("file1")}),
            ),
            "task 1: it refers to task 2, which comes after it",
        ),
        ((Task(1, "summarization", {"text": Reference(1, "text")}),), "task 1: it waits for task 1"),
        ((Task(1, "image-to-text", {"image": Input("file1")}, "[1]"),), "its parameters are not a JSON object"),
        ((Task(1, "image-to-text", {"image": Input("file1")}, "{"),), "its parameters are not a JSON object"),
        ((Task(1, "image-to-text", {"image": Input("file1")}, '{"x":1}'),), "image-to-text has no parameter x"),
        (
            (Task(1, "text-to-speech", {"text": Text("a")}, '{"speed":99}'),),
            "parameter speed: 99 is greater than the maximum of 2",
        ),
        ((Task(1, "image-to-text", {"image": Input("file1")}, pinned_revision="abc"),), "pinned without a model"),
    ],
)
def test_fault_is_found(tasks: tuple[Task, ...], message: str) -> None:
    (fault,) = fault_texts(*tasks)
    assert message in fault


def test_all_faults_are_reported_each_with_a_remedy() -> None:
    faults = find_faults(
        [
            Task(1, "telepathy"),
            Task(1, "image-to-text", {"image": Input("nope")}, '{"x":1}'),
            Task(3, "text-to-speech", {"text": Reference(2, "text")}),
        ],
        STANDARD,
        INPUTS,
    )
    assert [fault.task_id for fault in faults] == [1, 1, 1, 1, 3]
    assert all(fault.remedy for fault in faults)


def test_remedy_for_an_unknown_task_lists_similar_names_first() -> None:
    (fault,) = find_faults((Task(1, "image-to-txt", {}),), STANDARD, INPUTS)
    assert fault.remedy.startswith("use one that is: image-to-text, ")


def test_every_cycle_is_found() -> None:
    pairs = [(1, 2), (2, 1), (3, 4), (4, 3), (5, 1)]
    tasks = [Task(task_id, "summarization", {"text": Reference(referenced, "text")}) for task_id, referenced in pairs]
    circular = [fault.task_id for fault in find_faults(tasks, STANDARD, {}) if "in turn" in fault.message]
    assert circular == [1, 2, 3, 4]


def test_plan_with_too_many_tasks_is_rejected_without_checking_them() -> None:
    tasks = [Task(number, "telepathy") for number in range(1, HARD_LIMIT + 2)]
    assert fault_texts(*tasks) == [f"the plan has {HARD_LIMIT + 1} tasks (keep to {HARD_LIMIT})"]


def test_plan_with_too_many_references_is_refused_without_following_them() -> None:
    references = Many(tuple(Reference(1, "text") for _ in range(MAX_REFERENCES + 1)))
    (fault,) = fault_texts(Task(1, "summarization", {"text": references}))
    assert fault == f"the plan has {MAX_REFERENCES + 1} references to outputs of tasks (keep to {MAX_REFERENCES})"


def test_invalid_json_value_is_a_fault() -> None:
    spec = Spec("sorting", inputs=(Port("rows", Modality.JSON),))
    (fault,) = find_faults([Task(1, "sorting", {"rows": Json("{")})], {"sorting": spec}, {})
    assert "is not valid JSON" in fault.message


@pytest.mark.parametrize(
    ("json_schema", "value", "message"),
    [
        ('{"type":"integer"}', 3, ""),
        ('{"type":"integer"}', "3", "'3' is not of type 'integer'"),
        ("{", 3, "cannot be read"),
        ('{"type":"nonsense"}', 3, "cannot be read"),
        ('{"$ref":"http://localhost:1/schema.json"}', 3, "refers elsewhere"),
    ],
)
def test_parameter_is_checked_against_its_schema(json_schema: str, value: object, message: str) -> None:
    assert message in schema_violation(Parameter("p", json_schema), value)
    assert bool(message) is bool(schema_violation(Parameter("p", json_schema), value))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("it is wrong", "mend it", 0, "tts"), "task 0 (tts): it is wrong (mend it)"),
        (Fault("it is wrong", "mend it", 3), "task 3: it is wrong (mend it)"),
        (Fault("it is long", "shorten it"), "it is long (shorten it)"),
    ],
)
def test_fault_names_its_task(fault: Fault, text: str) -> None:
    assert str(fault) == text
