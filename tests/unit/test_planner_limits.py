"""Notes of plans on requests for more than their tasks do."""

import pytest

from services.planner.plan import Draft, NoteKind
from tests.support.plans import embedded_plan, notation, plan_request


def plan(text: str, *files: str) -> Draft:
    return embedded_plan(plan_request(text, files))


@pytest.mark.parametrize(
    ("text", "files", "reason"),
    [
        ("read only the first line", ("menu.png",), "is about a part"),
        ("read the last line of this sign", ("danger.png",), "is about a part"),
        ("write down only the first sentence", ("memo.wav",), "is about a part"),
        ("how many letters does the word bridge have", ("article.txt",), "is about a part"),
        ("cut off the top", ("wide.png",), "is about a part"),
        ("how many words do these have together", ("a.txt", "b.txt"), "asks for a sum"),
        ("how many of these reviews are positive?", ("a.txt", "b.txt"), "asks for a sum"),
        ("what is the total of the offers", ("a.pdf", "b.pdf"), "asks for a sum"),
        ("make the background white", ("apple.png",), "no kind of task here does"),
        ("make these into one pdf", ("flag.png", "wide.png"), "no kind of task here does"),
        ("summarize both in one text", ("a.txt", "b.txt"), "no kind of task here does"),
        ("read the longer one aloud", ("a.txt", "b.txt"), "picks one by a comparison"),
        ("turn it into a png with 500 pixels width", ("wide.png",), "asks for more than a format"),
        ("convert this to an mp3 with 128 kbit", ("memo.wav",), "asks for more than a format"),
    ],
)
def test_what_the_tasks_leave_out_is_noted(text: str, files: tuple[str, ...], reason: str) -> None:
    notes = [note for note in plan(text, *files).notes if note.kind is NoteKind.UNMAPPED]
    assert [reason in note.text for note in notes] == [True]


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("read the text in this picture", ("menu.png",)),
        ("how many letters has this text", ("article.txt",)),
        ("how many words does each of these have?", ("a.txt", "b.txt")),
        ("are these reviews positive or negative", ("a.txt", "b.txt")),
        ("which is the longer one, and by how many words?", ("a.txt", "b.txt")),
        ("cut out the apple from the background", ("apple.png",)),
        ("convert both to jpg", ("flag.png", "apple.png")),
    ],
)
def test_a_request_that_the_tasks_do_completely_has_no_note(text: str, files: tuple[str, ...]) -> None:
    assert plan(text, *files).notes == ()


@pytest.mark.parametrize(
    "text",
    ["make it grey and save it as a jpg", "make it grey and save as jpg"],
)
def test_an_edit_comes_before_the_conversion_of_its_result(text: str) -> None:
    assert notation(plan(text, "flag.png").tasks) == [
        "image-to-image(image=file1, instruction='make it grey')",
        "image-conversion(image=1.image; format=jpeg)",
    ]
