"""Corrections within a message, prompts of retrieval front ends, and questions whose words have no gloss."""

import pytest

from services.planner.embedded.corrections import apply_correction
from services.planner.embedded.retrieval_templates import unwrap
from services.planner.plan import NoteKind
from tests.support.plans import embedded_plan, notation, plan_request


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what's the invoice date, no wait, the due date", "what's the due date"),
        ("summarize it, actually no, just read it aloud", "read it aloud"),
        ("rotate it left - no, sorry, right", "rotate it right"),
        ("make it smaller, I mean brighter", "make it brighter"),
        ("Upscale a.png -- I mean b.png.", "Upscale b.png."),
        ("Caption a.png in French, I meant b.png", "Caption b.png in French"),
        ("Translate it to Spanish... no wait, make that Polish.", "Translate it to Polish."),
        ("tell me the check-in date, sorry, the check-out date", "tell me the check-out date"),
    ],
)
def test_corrected_words_replace_the_words_before(text: str, expected: str) -> None:
    assert apply_correction(plan_request(text)).text == expected


@pytest.mark.parametrize(
    "text",
    [
        "Sorry to bother you, who wrote this?",
        "describe it, no text please",
        "Do you know what I mean?",
        "no, thanks",
        "Read the first. Sorry, the other way round.",
    ],
)
def test_message_without_a_correction_is_unchanged(text: str) -> None:
    assert apply_correction(plan_request(text)).text == text


@pytest.mark.parametrize(
    "text",
    [
        "Answer from the text. Text: Anna lives in Rome with her two cats. Where does Anna live?",
        "Context: Anna lives in Rome with her two cats.\nQuestion: Where does Anna live?",
        "Use this.\n<context>\nAnna lives in Rome with her two cats.\n</context>\nQuestion: Where does Anna live?",
    ],
)
def test_prompt_of_a_retrieval_front_end_becomes_question_and_quotation(text: str) -> None:
    expected = "Where does Anna live? “Anna lives in Rome with her two cats.”"
    assert unwrap(plan_request(text)).text == expected


def test_text_without_a_question_is_no_retrieval_prompt() -> None:
    text = "Summarize this text: Anna lives in Rome with her two cats."
    assert unwrap(plan_request(text)).text == text


@pytest.mark.parametrize(
    ("text", "file", "expected"),
    [
        ("bis wann muss ich das bezahlen?", "bill.pdf", "document-question-answering"),
        ("Wieviel Mehrwertsteuer steht auf der Rechnung?", "bill.pdf", "document-question-answering"),
        ("몇 시에 시작해요?", "notice.txt", "question-answering"),
        ("下一次会议在哪里？", "notice.txt", "question-answering"),
    ],
)
def test_question_in_another_language_is_asked_in_its_own_words(text: str, file: str, expected: str) -> None:
    (task,) = embedded_plan(plan_request(text, [file])).tasks
    assert task.task == expected
    assert f"question='{text}'" in notation([task])[0]


def test_question_before_a_quotation_is_about_the_quotation() -> None:
    text = 'When does it open? "The museum opens on 3 September with a concert."'
    (task,) = embedded_plan(plan_request(text)).tasks
    assert "context='The museum opens" in notation([task])[0]


def test_order_that_no_task_fulfils_is_declined() -> None:
    draft = embedded_plan(plan_request("Book me a table at this place for friday", ["menu.png"]))
    assert draft.tasks == ()
    assert draft.notes[0].kind is NoteKind.UNMAPPED
