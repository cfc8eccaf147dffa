"""Answers to questions with words that narrow them down: guesses unless the clause of the answer has such words."""

import pytest

from experts.lite.form_fields import find_field_answer
from experts.lite.question_answering import find_answer
from experts.lite.question_types import Question
from services.responder.task_phrases import UNSURE

GAS = "Northern Gas\n\nStanding charge\t24.00\nGas\t168.00\nTotal\t£201.60\nAlready paid\t£150.00\nBalance\t£51.60\n"
ZOO = "Last year 210,000 people visited the zoo, 15 percent more than in the year before."
JOB = "You will earn 2,450 euros a month. You work 38 hours a week, mostly in the early shift from 5:30."
DEPOSIT = "Your deposit was 1,450 pounds. We keep 180 pounds for cleaning the oven and 95 pounds for a broken blind."
ROUTES = "Deliveries\nDay\tRoute\tDriver\nMonday\tLeeds\tHaddad\nTuesday\tBradford\tVogt\n"
CLASSES = "Beginner Italian\tMonday\t17:00\tRoom 2\nConversation Spanish\tThursday\t19:00\tRoom 1\n"


def score(question: str, text: str) -> float:
    found = find_answer(question, text)
    return found.score if found else 0.0


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How much do I still have to pay?", GAS),
        ("How many people visited the zoo the year before?", ZOO),
        ("How much is that a year?", JOB),
        ("How many hours do I work a day?", JOB),
        ("How much did they keep in total?", DEPOSIT),
        ("What does one hour of labour cost?", "Call-out\t40.00\nLabour, 3 hours\t135.00\n"),
        ("What does one flat white cost?", "2 x Flat white\t6.80\nTotal\t6.80\n"),
        ("What does the second ticket cost?", "The ticket costs 18 euros."),
        ("How much do three tickets cost?", "The ticket costs 18 euros."),
        ("How much is the bill without the call-out?", "Call-out\t40.00\nTotal\t312.00\n"),
        ("¿Cuánto cuesta una noche?", "He pagado 320 euros por las cuatro noches."),
        ("What can I do on Tuesday?", "Yoga\tMonday 18:00\nSpinning\tTuesday 19:15\n"),
        ("When is there no parking?", "NO PARKING\nMonday to Friday\n8 am to 6 pm"),
        (
            "When is the match?",
            "The match has been moved from Saturday to Sunday 9 March. The return match is on 23 March.",
        ),
        ("What is in the parcel?", "Your parcel was handed to Mr. Ito on 6 June."),
        ("What is not included?", "The trip costs 14 pounds, lunch is not included."),
        ("Who is Olga Petrov?", "To: Mrs. Olga Petrov, 9 Elm Grove, Leeds"),
        ("What happens if I return it late?", "Pick-up date\t3 May 2026\nReturn date\t9 May 2026\nTotal\t315.00 EUR\n"),
        ("What happens if I pay after the due date?", "Invoice date\t2 June 2026\nDue date\t16 June 2026\n"),
        ("When does the bridge open again?", "The bridge was opened in 1832. It is closed for repairs."),
        ("When will the pool reopen?", "The pool was opened on 3 March 1975."),
        ("Who takes Tuesday's route?", ROUTES),
    ],
)
def test_an_answer_without_the_qualifier_of_the_question_is_a_guess(question: str, text: str) -> None:
    assert score(question, text) < UNSURE


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How much is the standing charge?", GAS),
        ("How many people visited the zoo last year?", ZOO),
        ("How much will I earn a month?", JOB),
        ("How many hours do I work a week?", JOB),
        ("How much do they keep for the oven?", DEPOSIT),
        ("How much does one night cost?", "Price per night\t210.00 CHF\nTotal\t855.00 CHF\n"),
        ("Combien je paie sans la TVA ?", "Total HT\t92,50 €\nTVA 20 %\t18,50 €\nTotal TTC\t111,00 €\n"),
        ("How much do I have to pay in total?", "Net\t260.00\nAmount due\t£312.00\n"),
        ("When does the bridge open again?", "The bridge opens again on 4 May 2026."),
        ("When do I have to return it?", "Pick-up date\t3 May 2026\nReturn date\t9 May 2026\nTotal\t315.00 EUR\n"),
        ("When is the next meeting?", "The next meeting is on 28 October at 10 am."),
        ("How many points does the second ticket give?", "The second ticket gives 18 points."),
    ],
)
def test_an_answer_with_the_qualifier_of_the_question_is_no_guess(question: str, text: str) -> None:
    assert score(question, text) >= UNSURE


def test_a_field_of_a_document_without_the_qualifier_is_a_guess() -> None:
    found = find_field_answer(Question.parse("How much do I still have to pay?"), GAS, ())
    assert found is not None
    assert found.score < UNSURE


def test_a_field_of_a_document_with_the_words_of_the_question_is_no_guess() -> None:
    found = find_field_answer(Question.parse("How much is the standing charge?"), GAS, ())
    assert found is not None
    assert found.score >= UNSURE


def test_the_rest_of_a_rate_is_no_duration() -> None:
    found = find_answer("How many hours do I work?", JOB)
    assert found is not None
    assert found.text == "38 hours"


def test_chinese_commas_separate_the_clauses_of_two_times() -> None:
    found = find_answer("几点集合？", "早上7点在学校门口集合，下午5点返回。")
    assert found is not None
    assert found.text == "早上7点"


def test_a_day_has_the_time_in_the_next_cell() -> None:
    found = find_answer("When is beginner Italian?", CLASSES)
    assert found is not None
    assert found.text == "Monday\t17:00"


def test_the_time_of_a_row_is_given_alone_where_it_is_asked_for() -> None:
    found = find_answer("What time is Conversation Spanish?", CLASSES)
    assert found is not None
    assert found.text == "19:00"
