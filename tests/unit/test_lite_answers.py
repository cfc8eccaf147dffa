"""Answers of the lite expert by kind of question: what is accepted, what is superseded, and what is declined."""

import pytest

from experts.lite.question_answering import find_answer
from experts.lite.question_types import AnswerKind, Question

BILL = (
    "Brown & Sons\n4 Mill Road, Hull\nTel. 01482 496 011\n\n"
    "Invoice No.\tB-77\nDate\t3 May 2024\nPayment due\t2 June 2024\n\n"
    "To: Ms. Eva Lind\n\nNew door\t240.00\nPaint\t35.50\nNet\t275.50\nVAT 20%\t55.10\nAmount due\t£330.60"
)
LETTER = (
    "Your visit on 4 May at 9:15 has to be moved. Your new visit is on 19 May at 14:30 with Dr. Sarah Lindholm.\n"
    "Please bring your insurance card. The visit takes 45 minutes and costs 30 euros. Parking is behind the library."
)


def answer(question: str, context: str) -> str | None:
    found = find_answer(question, context)
    return found.text if found else None


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How much do I have to pay?", "£330.60"),
        ("what do i still owe", "£330.60"),
        ("How much is it without VAT?", "275.50"),
        ("how much VAT is on it", "55.10"),
        ("how much was the paint?", "35.50"),
        ("until when do I have to pay?", "2 June 2024"),
        ("what is the date of the invoice", "3 May 2024"),
        ("What's the invoice number?", "B-77"),
        ("Who sent this?", "Brown & Sons"),
        ("Who is it addressed to?", "Ms. Eva Lind"),
        ("what number can I call", "01482 496 011"),
        ("What is the cheapest item?", "Paint\t35.50"),
        ("Wie hoch ist der Gesamtbetrag?", "£330.60"),
        ("Quand dois-je payer ?", "2 June 2024"),
        ("¿Cuánto hay que pagar?", "£330.60"),
        ("총액이 얼마예요?", "£330.60"),
        ("总共多少钱？", "£330.60"),
        ("What is the e-mail address?", None),
    ],
)
def test_question_about_a_bill_is_answered_by_its_labels(question: str, expected: str | None) -> None:
    assert answer(question, BILL) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("When is my visit?", "19 May at 14:30"),
        ("Who is the visit with?", "Sarah Lindholm"),
        ("How long does it take?", "45 minutes"),
        ("What does the visit cost?", "30 euros"),
        ("where can I park", "behind the library"),
        ("what should I bring?", "your insurance card"),
        ("What is the phone number?", None),
        ("How many people are coming?", None),
        ("Are dogs welcome?", None),
    ],
)
def test_answer_is_of_the_kind_that_the_question_asks_for(question: str, expected: str | None) -> None:
    assert answer(question, LETTER) == expected


def test_part_of_a_number_of_things_is_counted() -> None:
    text = "A flood damaged two of its five arches."
    assert answer("How many arches were damaged?", text) == "two"


def test_date_without_any_word_of_the_question_is_a_guess() -> None:
    found = find_answer("When is the concert?", "SUMMER NIGHT\nSaturday 22 June, 7 pm")
    assert found
    assert found.score < 0.6


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When was the telephone invented?", AnswerKind.DATE),
        ("What phone number can I call?", AnswerKind.PHONE),
        ("How much water fits in?", AnswerKind.MEASURE),
        ("Wie lange dauert es?", AnswerKind.DURATION),
        ("Qui a écrit la lettre ?", AnswerKind.WHO),
        ("几点开始？", AnswerKind.TIME),
        ("Are they open on Mondays?", AnswerKind.YES_NO),
    ],
)
def test_question_has_a_kind(question: str, kind: AnswerKind) -> None:
    assert Question.parse(question).kind is kind
