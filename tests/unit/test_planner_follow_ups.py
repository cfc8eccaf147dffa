"""Requests that continue a conversation without naming its files again."""

import pytest

from services.planner.embedded.follow_ups import complete
from services.planner.plan import Text
from services.planner.request import Turn
from tests.support.plans import embedded_plan, inputs, notation, plan_request

INVOICE = (
    Turn(by_user=True, text="How much do I have to pay?", attachments=inputs(["invoice.pdf"])),
    Turn(by_user=False, text="**312.00**"),
)
MINUTES = (
    Turn(by_user=True, text="when is the next meeting?", attachments=inputs(["minutes.txt"])),
    Turn(by_user=False, text="**28 October**"),
)
FLAG = (
    Turn(by_user=True, text="make this half as big", attachments=inputs(["flag.png"])),
    Turn(by_user=False, text="The new picture is flag-resize.png."),
)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("and until when?", "Until when do I have to pay?"),
        ("where", "Where do I have to pay?"),
        ("no i meant without VAT", "How much do I have to pay without VAT?"),
        ("and the due date?", "What is the due date?"),
        ("what about the VAT?", "What is the VAT?"),
    ],
)
def test_short_follow_up_is_completed_by_the_question_before_it(text: str, question: str) -> None:
    assert complete(plan_request(text, earlier=INVOICE)).text == question


@pytest.mark.parametrize(
    ("before", "text", "question"),
    [
        ("what did the laptop itself cost?", "and the mouse?", "what did the mouse cost?"),
        ("when is the concert", "and the rehearsal?", "when is the rehearsal?"),
        ("how much is the car insurance per year?", "what about the bike?", "how much is the bike per year?"),
        ("how much is a pitch?", "and a cabin?", "how much is a cabin?"),
        ("when does Boris arrive", "and Anna?", "when does Anna arrive?"),
        ("what did the charger cost?", "same for the dock please", "what did the dock cost?"),
        ("who is the landlord", "phone number?", "What is the phone number?"),
        ("when is the concert", "opening hours as well", "What is the opening hours?"),
        ("how much is a room in june?", "and in july?", "how much is a room in july"),
        ("when do you open on saturday", "and on sunday?", "when do you open on sunday"),
        ("what does a ticket cost", "and for children?", "What does a ticket cost for children?"),
        ("where does the bus leave", "and how long does that take?", "how long does the bus take?"),
    ],
)
def test_follow_up_asks_the_question_before_it_about_another_thing(before: str, text: str, question: str) -> None:
    earlier = (Turn(by_user=True, text=before, attachments=inputs(["letter.pdf"])),)
    assert complete(plan_request(text, earlier=earlier)).text == question


@pytest.mark.parametrize("text", ["thanks", "summarize it", "translate please", "great, thanks", "are you sure?"])
def test_message_with_a_request_of_its_own_is_no_follow_up(text: str) -> None:
    assert complete(plan_request(text, earlier=INVOICE)).text == text


FLOUR = (Turn(by_user=True, text="how much flour do I need?", attachments=inputs(["cake.txt"])),)
TWO_FILES = (Turn(by_user=True, text="what's the total in a.pdf?", attachments=inputs(["a.pdf", "b.pdf"])),)


@pytest.mark.parametrize(
    ("text", "earlier", "question"),
    [
        ("no, not the flour, the milk", FLOUR, "how much milk do I need?"),
        ("and the milk?", FLOUR, "how much milk do I need?"),
        ("no, I meant the other file", TWO_FILES, "what is the total in b.pdf?"),
    ],
)
def test_correction_replaces_words_of_the_question_before_it(
    text: str, earlier: tuple[Turn, ...], question: str
) -> None:
    assert complete(plan_request(text, earlier=earlier)).text == question


@pytest.mark.parametrize("text", ["sorry, wrong file, here is the right one", "and this one?", "same for this file"])
def test_question_is_repeated_for_another_file(text: str) -> None:
    assert complete(plan_request(text, ["other.pdf"], earlier=INVOICE)).text == "How much do I have to pay?"


def test_pronoun_means_what_the_question_before_was_about() -> None:
    earlier = (Turn(by_user=True, text="what day is my appointment?"),)
    assert complete(plan_request("who is that with?", earlier=earlier)).text == "who is my appointment with?"


@pytest.mark.parametrize("text", ["thanks!", "read it aloud", "who signed the letter?", "the other one"])
def test_message_that_stands_alone_is_left_as_it_is(text: str) -> None:
    assert complete(plan_request(text, earlier=INVOICE)).text == text


def test_message_with_a_file_is_left_as_it_is() -> None:
    assert complete(plan_request("and until when?", ["other.pdf"], earlier=INVOICE)).text == "and until when?"


@pytest.mark.parametrize(
    ("earlier", "task"), [(INVOICE, "document-question-answering"), (MINUTES, "question-answering")]
)
def test_follow_up_question_is_about_the_file_of_the_user(earlier: tuple[Turn, ...], task: str) -> None:
    (planned,) = embedded_plan(plan_request("and where can I park?", earlier=earlier)).tasks
    assert planned.task == task
    assert planned.arguments["question"] == Text("Where can I park?")
    assert earlier[0].attachments[0].value in planned.arguments.values()


def test_follow_up_edits_the_picture_of_the_turn_before() -> None:
    draft = embedded_plan(plan_request("now turn it upside down", earlier=FLAG))
    assert [task.task for task in draft.tasks] == ["image-to-image"]
    assert draft.notes == ()


def test_thanks_in_a_conversation_plan_nothing() -> None:
    assert notation(embedded_plan(plan_request("thanks!", earlier=INVOICE)).tasks) == []
