"""Messages with files that ask without a question's form, and messages that only seem to."""

import pytest

from services.planner.embedded.patterns import lexicon
from services.planner.plan import Draft, Text
from tests.support.plans import embedded_plan, plan_request


def questions(draft: Draft) -> list[str]:
    asked = (task.arguments.get("question") for task in draft.tasks)
    return [argument.text for argument in asked if isinstance(argument, Text)]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("saturday ticket prices", "Saturday ticket prices?"),
        ("final day to hand the keys in", "Final day to hand the keys in?"),
        ("check out time?", "Check out time?"),
        ("order number?", "Order number?"),
        ("I'm looking for the reference number", "The reference number?"),
        ("remind me of the check-in time", "The check-in time?"),
        ("tell me the yearly rent of the flat", "The yearly rent of the flat?"),
        ("I forgot the alarm code", "The alarm code?"),
        ("Name of the doctor", "Name of the doctor"),
        ("Need a phone number for the claims team please", "A phone number for the claims team?"),
        ("I forgot which room it is", "Which room it is?"),
        ("Our boiler is dead and I lost the plumber's card. Number of the landlord", "Number of the landlord?"),
    ],
)
def test_words_with_document_and_no_other_task_are_question(text: str, question: str) -> None:
    assert questions(embedded_plan(plan_request(text, ["letter.pdf"]))) == [question]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("My heating failed last night, which number do I call for repairs", "Which number do I call for repairs"),
        ("I have to renew my passport, where can I do it and when", "Where can I do it"),
        ("deposit how much", "Deposit how much"),
        ("the penalty for late payment, how much is it?", "The penalty for late payment, how much is it?"),
        ("I need the number of the policy, what is it", "The number of the policy, what is it"),
        ("they only refund the flight, i need to know what that was", None),
        ("whats the pin thanks", "What's the pin"),
        ("my aunt asked me who teaches the course, do you know?", "Who teaches the course?"),
    ],
)
def test_question_without_mark_is_found_in_statement(text: str, question: str | None) -> None:
    whole = f"{text[:1].upper()}{text[1:]}?"
    assert questions(embedded_plan(plan_request(text, ["letter.pdf"])))[0] == (question or whole)


@pytest.mark.parametrize(
    "statement",
    [
        "was back at the shop ten minutes late and they refused it, typical.",
        "When I opened the box the cup was broken.",
        "What a nightmare this move has been.",
        "how annoying, they changed it again.",
        "hi, we were planning to come on friday.",
    ],
)
def test_statement_before_question_is_no_question(statement: str) -> None:
    draft = embedded_plan(plan_request(f"{statement} who pays for the cleaning?", ["letter.pdf"]))
    assert questions(draft) == ["Who pays for the cleaning?"]


@pytest.mark.parametrize(
    "text",
    [
        "text her that we are late",
        "ring the landlord and complain",
        "tell Tomas that we are late",
        "can you take care of this?",
        "here is my letter",
        "We got this from our landlord yesterday",
        "I am so angry about this letter",
        "I need it in green",
        "to french",
        "well?",
        "same as last time",
    ],
)
def test_orders_and_statements_are_no_questions(text: str) -> None:
    assert not questions(embedded_plan(plan_request(text, ["letter.pdf"])))


def test_words_without_file_are_no_question() -> None:
    assert not embedded_plan(plan_request("saturday ticket prices")).tasks


def test_long_message_is_planned_in_time() -> None:
    assert not embedded_plan(plan_request("i was to the of " * 20_000, ["letter.pdf"])).tasks


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("ok what is the rent", "What is the rent"),
        ("thanks, sunday opening hours", "Sunday opening hours?"),
        ("great, one more thing: the due date?", "The due date?"),
    ],
)
def test_question_after_small_talk_is_asked(text: str, question: str) -> None:
    assert questions(embedded_plan(plan_request(text, ["letter.pdf"]))) == [question]


def test_small_talk_is_recognized_in_time() -> None:
    assert not lexicon().chat.fullmatch("ok great that is it thanks a lot " * 2_000 + "zebra")
