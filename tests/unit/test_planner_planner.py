"""Supplied plans, and drafts that are valid only in part."""

import pytest

from services.common.errors import InvalidRequest
from services.planner.plan import Decision, Draft, Input, Reference, Task, Text
from services.planner.planner import check_plan, valid_part
from tests.support.plans import LITE, file, notation

OCR = Task(1, "image-to-text", {"image": Input("file1")})
ALOUD = Task(2, "text-to-speech", {"text": Reference(1, "text")})
MOOD = Task(3, "text-classification", {"text": Reference(1, "text")})
DECISION = Decision("embedded", "", 1.0)


def test_invalid_tasks_of_a_draft_are_noted_and_the_rest_is_planned() -> None:
    invalid_task = Task(2, "text-to-speech", {"text": Input("file9")}, source="say it")
    dependent_task = Task(4, "audio-to-audio", {"audio": Reference(2, "audio")})
    draft = valid_part(Draft((OCR, invalid_task, MOOD, dependent_task), (), DECISION), LITE, {"file1": file("a.png")})
    assert notation(draft.tasks) == ["image-to-text(image=file1)", "text-classification(text=1.text)"]
    assert ["say it" in note.text and "file9" in note.text for note in draft.notes] == [True]


def test_plan_is_truncated_at_the_limit_with_note() -> None:
    draft = valid_part(Draft((OCR, ALOUD, MOOD), (), DECISION), LITE, {"file1": file("a.png")}, limit=2)
    assert draft.tasks == (OCR, ALOUD)
    assert ["only the first 2" in note.text for note in draft.notes] == [True]


def test_supplied_plan_is_returned_or_rejected_with_all_faults() -> None:
    assert check_plan([OCR], LITE, {"file1": file("a.png")})[0] == OCR
    with pytest.raises(InvalidRequest, match=r"file1.*telepathy") as raised:
        check_plan([OCR, Task(2, "telepathy", {"text": Text("x")})], LITE, {})
    assert raised.value.reason == "PLAN"
