"""Numbers, duplicates and links of the tasks that a controller adds to a plan."""

from dataclasses import replace

import pytest

from services.planner.plan import Input, Many, Reference, Task, Text
from services.planner.plan_assembler import PlanAssembler, is_equal, is_similar, new_tasks
from tests.support.plans import embedded_plan, plan_request

OCR = Task(1, "image-to-text", {"image": Input("file1")})
ALOUD = Task(2, "text-to-speech", {"text": Reference(1, "text")})
OTHER = Task(3, "image-to-text", {"image": Input("file2")})


def add(assembler: PlanAssembler, own_id: int, *tasks: Task) -> tuple[Task, ...]:
    """Adds tasks that have no ids yet; returns the new ones."""
    group = assembler.number([replace(task, id=0) for task in tasks])
    assembler.add(own_id, group)
    return group.new


def test_new_tasks_are_numbered_after_existing_ones() -> None:
    assembler = PlanAssembler([replace(OCR, id=7)])
    assert [task.id for task in add(assembler, 0, ALOUD, OTHER)] == [8, 9]
    assert [task.id for task in assembler.tasks] == [8, 9]


def test_numbering_alone_adds_nothing() -> None:
    assembler = PlanAssembler()
    assert assembler.number([OCR]) == assembler.number([OCR])
    assert assembler.tasks == []


def test_task_equal_to_an_existing_one_is_that_task() -> None:
    assembler = PlanAssembler([OCR])
    assert add(assembler, 5, replace(OCR, source="other words")) == ()
    assert assembler.groups[5] == (OCR,)


def test_existing_task_stands_for_one_task_only() -> None:
    assembler = PlanAssembler([OCR])
    assert [task.id for task in add(assembler, 5, OCR, OCR)] == [2]
    assert [task.id for task in add(assembler, 6, OCR)] == [3]


def test_task_equal_to_a_failed_one_is_left_out_with_its_dependents() -> None:
    assembler = PlanAssembler([OCR], failed=[1])
    assert add(assembler, 5, OCR) == ()
    [left_out] = assembler.groups[5]
    assert add(assembler, 6, replace(ALOUD, arguments={"text": Reference(left_out.id, "text")})) == ()
    assert add(assembler, 7, OTHER) == tuple(assembler.tasks)
    assert [task.task for task in assembler.tasks] == ["image-to-text"]


def test_failed_task_and_its_dependents_cannot_be_used() -> None:
    assembler = PlanAssembler([OCR, ALOUD, OTHER], failed=[1])
    assert assembler.groups == {3: (OTHER,)}
    assert assembler.sources == [(OTHER,)]


def test_reserved_id_no_longer_means_the_existing_task() -> None:
    assembler = PlanAssembler([OCR])
    assembler.reserve(1)
    assert assembler.groups == {}
    assert assembler.sources == [(OCR,)]


def test_references_are_linked_to_tasks_of_the_plan() -> None:
    assembler = PlanAssembler([replace(OCR, id=4)])
    add(assembler, 1, OCR)
    comparing = Task(
        2, "sentence-similarity", {"text": Reference(1, "text"), "sentences": Many((Reference(1, "text"),))}
    )
    assert assembler.linked(comparing).arguments == {
        "text": Reference(4, "text"),
        "sentences": Many((Reference(4, "text"),)),
    }
    assert assembler.needed(assembler.linked(comparing)) == [replace(OCR, id=4)]


@pytest.mark.parametrize("planned_before", range(4))
def test_interrupted_plan_is_continued_with_missing_tasks(planned_before: int) -> None:
    text = "Read the text in this image aloud and tell me whether it sounds happy"
    complete = embedded_plan(plan_request(text, ["sign.png"])).tasks
    assert [*complete[:planned_before], *new_tasks(complete, complete[:planned_before])] == list(complete)


def test_task_planned_by_another_controller_is_not_repeated() -> None:
    existing = [Task(4, "image-to-text", {"image": Input("file1")}, source="other words")]
    assert new_tasks([OCR, ALOUD], existing) == [Task(5, "text-to-speech", {"text": Reference(4, "text")})]


def test_similar_tasks_may_differ_in_texts_and_equal_ones_may_not() -> None:
    asking = Task(1, "visual-question-answering", {"image": Input("file1"), "question": Text("Who?")})
    other = replace(asking, arguments={**asking.arguments, "question": Text("Who is it?")})
    assert is_similar(asking, other)
    assert not is_equal(asking, other)
    assert not is_similar(asking, replace(asking, arguments={**asking.arguments, "image": Input("file2")}))
