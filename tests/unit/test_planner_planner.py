"""Plans that go on where one broke off, and drafts of which only a part is valid."""

import pytest

from services.common.errors import InvalidRequest
from services.planner.continuation import new_tasks
from services.planner.plan import Decision, Draft, Input, Reference, Task, Text
from services.planner.planner import check_plan, keep_valid
from tests.support.plans import LITE, asked, file, planned, written

OCR = Task(1, "image-to-text", {"image": Input("file1")})
ALOUD = Task(2, "text-to-speech", {"text": Reference(1, "text")})
MOOD = Task(3, "text-classification", {"text": Reference(1, "text")})
SURE = Decision("embedded", "", 1.0)


@pytest.mark.parametrize("standing", range(4))
def test_a_plan_that_broke_off_goes_on_with_what_is_missing(standing: int) -> None:
    words = "Read the text in this image aloud and tell me whether it sounds happy"
    whole = planned(asked(words, ["sign.png"])).tasks
    assert [*whole[:standing], *new_tasks(whole, whole[:standing])] == list(whole)


def test_what_another_controller_planned_is_not_planned_again() -> None:
    prior = [Task(4, "image-to-text", {"image": Input("file1")}, source="other words")]
    assert new_tasks([OCR, ALOUD], prior) == [Task(5, "text-to-speech", {"text": Reference(4, "text")})]


def test_only_what_is_valid_leaves_a_draft_and_the_rest_is_said() -> None:
    lost = Task(2, "text-to-speech", {"text": Input("file9")}, source="say it")
    after = Task(4, "audio-to-audio", {"audio": Reference(2, "audio")})
    draft = keep_valid(Draft((OCR, lost, MOOD, after), (), SURE), LITE, {"file1": file("a.png")})
    assert written(draft.tasks) == ["image-to-text(image=file1)", "text-classification(text=1.text)"]
    assert ["say it" in note.text and "file9" in note.text for note in draft.notes] == [True]


def test_a_plan_is_cut_to_its_limit_and_says_so() -> None:
    draft = keep_valid(Draft((OCR, ALOUD, MOOD), (), SURE), LITE, {"file1": file("a.png")}, limit=2)
    assert draft.tasks == (OCR, ALOUD)
    assert ["only the first 2" in note.text for note in draft.notes] == [True]


def test_a_supplied_plan_is_given_back_or_refused_with_all_its_faults() -> None:
    assert check_plan([OCR], LITE, {"file1": file("a.png")})[0] == OCR
    with pytest.raises(InvalidRequest, match=r"file1.*telepathy") as refused:
        check_plan([OCR, Task(2, "telepathy", {"text": Text("x")})], LITE, {})
    assert refused.value.reason == "PLAN"
