"""Corrections within a message, prompts of retrieval front ends, and questions whose words have no gloss."""

import pytest

from services.planner.embedded.corrections import apply_correction
from services.planner.embedded.retrieval_templates import unwrap
from services.planner.plan import NoteKind, Text
from tests.support.plans import embedded_plan, notation, plan_request

PASSAGE = "Anna lives in Rome with her two cats."


def corrected_text(text: str) -> str | None:
    corrected = apply_correction(plan_request(text))
    return corrected.text if corrected else None


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
        ("summarize this. No wait, read it aloud instead", "read it aloud"),
        ("How much milk do I need? Sorry, I meant butter.", "How much butter do I need"),
        ("When does Ms Lee Anna arrive, sorry, I meant Boris", "When does Ms Lee Boris arrive"),
        (
            "Crop the first picture -- no, the second -- and blur it",
            "Crop the second -- and blur it",
        ),
        ("how much was the kettle, no hang on, the toaster", "how much was the toaster"),
        ("tell me the monthly fee. sorry, scratch that, the deposit is what I need", "tell me the deposit"),
        ("flip it... no sorry, don't flip it, just make it grey", "make it grey"),
        ("Make it sharper. Sorry, I mixed that up, I meant blurrier", "Make it blurrier"),
        ("rotate it to the left. My mistake, to the right", "rotate it to the right"),
        ("is it open on monday, no wait, tuesday?", "is it open on tuesday"),
        ("When does the bus leave on Sunday? Hang on, on Saturday", "When does the bus leave on Saturday"),
        ("Tell me the check-in times. Sorry, scratch that, check-out is what I need", "Tell me the check-out"),
        ("what was the net pay.. I mean gross pay", "what was the gross pay"),
        ("What is the price of the lamp, no, the backpack?", "What is the price of the backpack"),
        ("What is the price of the lamp? I meant the backpack", "What is the price of the backpack"),
        ("blur it... no sorry, don't blur it, just make it grey", "make it grey"),
        ("Make it larger. Sorry, I got that wrong, I meant smaller", "Make it smaller"),
    ],
)
def test_corrected_words_replace_the_words_before(text: str, expected: str) -> None:
    assert corrected_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what is the total in bill.pdf? no, I meant the other file", "what is the total in offer.pdf"),
        ("how much does the bill say, no sorry I meant the offer", "how much does the offer.pdf say"),
    ],
)
def test_correction_names_another_file(text: str, expected: str) -> None:
    corrected = apply_correction(plan_request(text, ["bill.pdf", "offer.pdf"]))
    assert corrected
    assert corrected.text == expected


@pytest.mark.parametrize(
    "text", ["What is the total? No, I meant the other file.", "Who signed it? Sorry, I meant yesterday."]
)
def test_request_with_an_unclear_correction_is_not_planned(text: str) -> None:
    draft = embedded_plan(plan_request(text, ["bill.pdf", "offer.pdf"]))
    assert draft.tasks == ()
    assert draft.notes[0].kind is NoteKind.CLARIFY


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
    assert corrected_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        f"Answer from the text. Text: {PASSAGE} Where does Anna live?",
        f"Context: {PASSAGE}\nQuestion: Where does Anna live?",
        f"Use this.\n<context>\n{PASSAGE}\n</context>\nQuestion: Where does Anna live?",
        f"### Context:\n{PASSAGE}\n\n### Question:\nWhere does Anna live?\n\n### Answer:",
        f'<context>\n<source id="1">{PASSAGE}</source>\n</context>\n\n<query>Where does Anna live?</query>',
        f"Use this context.\n\n{PASSAGE}\n\nQuestion: Where does Anna live?\nHelpful Answer:",
        f"Context is below.\n------\n{PASSAGE}\n------\nQuery: Where does Anna live?\nAnswer: ",
        f'Use this text:\n"""\n{PASSAGE}\n"""\nQ: Where does Anna live',
        f"Context:\n[CONTEXT 0]:\n{PASSAGE}\n[END CONTEXT 0]\n\nWhere does Anna live?",
        f"Question: Where does Anna live?\nContext: {PASSAGE}\nAnswer:",
        f"Here is the knowledge base:\n{PASSAGE}\nThe above is the knowledge base.\n\nWhere does Anna live?",
        f"Write a response.\n\n### Instruction:\nWhere does Anna live?\n\n### Input:\n{PASSAGE}\n\n### Response:",
        f"### Task\nUse them.\n\n### Notes:\n{PASSAGE}\n\n### Question:\nWhere does Anna live?\n\n### Answer\n",
    ],
)
def test_prompt_of_a_retrieval_front_end_becomes_question_and_quotation(text: str) -> None:
    expected = f"Where does Anna live? “{PASSAGE}”"
    assert unwrap(plan_request(text)).text == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("After how many days are guest accounts deleted?", "After how many days are guest accounts deleted?"),
        ("home of the cats", "home of the cats?"),
    ],
)
def test_question_of_retrieval_prompt_is_asked_of_its_passages(question: str, expected: str) -> None:
    prompt = f"Answer from the sources below.\n\nSource 1: {PASSAGE}\nSource 2: Bob has a dog.\n\nQuestion: {question}"
    (task,) = embedded_plan(plan_request(prompt)).tasks
    assert task.task == "question-answering"
    assert task.arguments["question"] == Text(expected)


def test_retrieval_prompt_in_another_language_is_planned_in_it() -> None:
    text = "Kontext: Das Bad ist von Mai bis September geöffnet.\n\nFrage: Wann ist das Bad geöffnet?\n\nAntwort:"
    (task,) = embedded_plan(plan_request(text)).tasks
    assert task.arguments["question"] == Text("Wann ist das Bad geöffnet?")
    assert task.arguments["context"] == Text("Das Bad ist von Mai bis September geöffnet.")


def test_text_without_a_question_is_no_retrieval_prompt() -> None:
    text = f"Summarize this text: {PASSAGE}"
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
