"""Calculations of the lite expert: sums, comparisons, dates and arithmetic, and what it declines."""

from datetime import date

import pytest

from experts.lite.calculation import calculate
from experts.lite.quantities import find_amounts, find_dates, find_due_date, find_issue_date, find_total
from services.common.errors import InvalidRequest
from tests.support.samples import run_lite_task

TODAY = date(2026, 11, 24)
PLUMBER = (
    "Brightwater Plumbing\nInvoice No.\t2087\nDate\t14 May 2024\nPayment due\t13 June 2024\n\nNew tap\t85.00\n"
    "Net\t260.00\nVAT 20%\t52.00\nAmount due\t£312.00\n\nPlease pay to account 73190246, sort code 20-45-88."
)
ELECTRICIAN = "Voltline\nDate\t2 May 2024\nDue date\t30 May 2024\nNet\t239.50\nVAT 20%\t47.90\nTotal\t£287.40"


def result(question: str, *texts: str) -> str:
    return calculate(question, texts, TODAY).text


# ---------------------------------------------------------------- several texts


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which of these two is the more expensive one?", "text 1 has the largest amount, £312.00"),
        ("which is cheaper", "text 2 has the smallest amount, £287.40"),
        ("what costs more", "text 1 has the largest amount, £312.00"),
        ("how much more expensive is the first one?", "the difference is £24.60"),
        ("add up both bills please", "£599.40 is the sum (text 1: £312.00, text 2: £287.40)"),
        ("how much do I have to pay altogether", "£599.40 is the sum"),
        ("What is the average of these bills?", "£299.70 is the average"),
        ("which one is due first?", "text 2 has the earliest due date, 30 May 2024"),
        ("which invoice is older", "text 2 has the earliest date, 2 May 2024"),
    ],
)
def test_bills_are_compared_and_added_up(question: str, expected: str) -> None:
    assert expected in result(question, PLUMBER, ELECTRICIAN)


def test_lengths_of_texts_are_compared_in_words() -> None:
    assert result("which is the longer one, and by how many words?", "a b c", "d") == (
        "text 1 is the longest, 3 words; text 2 has 1 word; the difference is 2 words"
    )


def test_equal_amounts_are_called_equal() -> None:
    assert result("which is cheaper", "Total 5.00", "Total: 5.00") == "they are equal: 5.00 each"


def test_text_without_clear_total_is_declined_by_number() -> None:
    with pytest.raises(InvalidRequest, match="no clear total was found in text 2"):
        result("which is cheaper", PLUMBER, "Bread £2.00, milk £1.10")


def test_amounts_in_different_currencies_are_declined() -> None:
    with pytest.raises(InvalidRequest, match="different currencies"):
        result("add them up", "Total £5.00", "Total 5.00 €")


@pytest.mark.parametrize("question", ["which is nicer", "hello", "how many working days until 3 May 2027"])
def test_question_that_is_not_understood_is_declined(question: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot calculate this"):
        result(question, PLUMBER, ELECTRICIAN)


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("which trip takes longer?", "trip"),
        ("which concert is first?", "concert"),
        ("which one has more VAT, and what does it cost", "vat"),
        ("which tap is cheaper", "tap"),
        ("which room is bigger", "which amounts"),
    ],
)
def test_comparison_of_something_else_is_declined(question: str, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        result(question, PLUMBER, ELECTRICIAN)


def test_offers_are_compared_by_the_end_of_their_validity() -> None:
    offers = [f"Date\t{day} March 2025\nValid until\t{day + 10} March 2025\nTotal\t{day}0.00" for day in (9, 5)]
    assert result("which offer expires first", *offers).startswith("text 2 has the earliest due date, 15 March 2025")


def test_amounts_together_are_added_up_and_not_compared() -> None:
    assert result("what do they cost together", PLUMBER, ELECTRICIAN).startswith("£599.40 is the sum")


def test_list_of_a_single_text_is_added_up_unless_it_states_a_total() -> None:
    assert result("add up the prices", "bread 2.00\nmilk 1.10") == "3.10 is the sum of 2.00, 1.10"
    with pytest.raises(InvalidRequest, match="states a total already"):
        result("add up the prices", "bread 2.00\nmilk 1.10\nTotal 3.10")


HOTELS = (
    "Seaview\nDouble room\t£80.00\nBreakfast\t£9.00\nCity tax\t£2.00",
    "Moorland\nDouble room\t£70.00\nBreakfast: £12.50\nCity tax\t£2.00",
)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which hotel charges less for breakfast?", "text 1 has the smallest breakfast, £9.00; text 2 has £12.50"),
        ("what is the difference in the double room between the two", "the difference is £10.00"),
        ("what is the total city tax of both hotels", "£4.00 is the sum"),
        ("add up the city tax of both", "£4.00 is the sum (text 1: £2.00, text 2: £2.00)"),
    ],
)
def test_amounts_that_a_question_names_are_compared_and_added_up(question: str, expected: str) -> None:
    assert expected in result(question, *HOTELS)


def test_named_amount_that_only_one_text_states_is_declined() -> None:
    with pytest.raises(InvalidRequest, match="parking"):
        result("which one has the cheaper parking", f"{HOTELS[0]}\nParking\t£5.00", HOTELS[1])


FEES = "The deposit of £90 stays the same. Your fee rises from £62.00 to £65.50 in May."
PRICES = "The old price was 45 euros. The new price is 39.50 euros. Postage is 4 euros."


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        ("by how much does the fee go up?", FEES, "£3.50 more: from £62.00 to £65.50"),
        ("By how much did the price drop", PRICES, "€5.50 less: from €45.00 to €39.50"),
        (
            "what is the difference between the room and the breakfast",
            HOTELS[0],
            "£71.00 is the difference between £80.00 and £9.00",
        ),
    ],
)
def test_two_amounts_of_a_text_have_a_difference(question: str, text: str, expected: str) -> None:
    assert result(question, text) == expected


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("by how much does the deposit go up?", FEES),
        ("by how much does my insurance go up?", FEES),
        ("by how much does the fee rise", "The fee is 20 pounds. Late payers pay 25 pounds."),
    ],
)
def test_difference_of_unclear_amounts_is_declined(question: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match="not clear which two amounts"):
        result(question, text)


# ---------------------------------------------------------------- dates


DESK = "We ordered the desk on 3 May 2025. It was delivered on 12 May, and we paid on 20 May.\n\nReturn by\t1 June"
CABIN = "Outbound\tYork - Hull\n\nDate\t2 July 2025\n\nInbound\tHull - York\nDate\t11 July 2025\n\nCheck-in\t3 July"


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        ("how many days between the order and the delivery?", DESK, "9 days from 3 May 2025 to 12 May 2025"),
        (
            "how many weeks lie between the start and the end of the lease?",
            "The lease starts on 2 May 2025 and ends on 30 May 2025.",
            "4 weeks (28 days) from 2 May 2025",
        ),
        ("how many days from delivery to payment", DESK, "8 days from 12 May 2025"),
        ("how many nights between the outward and the return trip?", CABIN, "9 nights from 2 July 2025"),
        ("how many days from check-in to the trip back?", CABIN, "8 days from 3 July 2025"),
        ("Forty days after the delivery, which date is that?", DESK, "21 June 2025 (Saturday)"),
        ("what date is two weeks before the return date?", DESK, "18 May 2025 (Sunday)"),
    ],
)
def test_dates_of_events_are_calculated_with(question: str, text: str, expected: str) -> None:
    assert result(question, text).startswith(expected)


@pytest.mark.parametrize(
    "question", ["how many days between the order and the repair?", "which date is ten days after the party?"]
)
def test_event_without_a_date_is_declined(question: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot calculate this"):
        result(question, DESK)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["between ", "how much ", "thirty days ", "from 3 May to "])
def test_hostile_question_is_declined_in_time(part: str) -> None:
    with pytest.raises(InvalidRequest):
        result(part * (50_000 // len(part)), DESK)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["from 3 May to ", "£5.00 from ", "Date\t", "3 May 2025 ", "the order "])
def test_hostile_text_is_calculated_with_in_time(part: str) -> None:
    with pytest.raises(InvalidRequest):
        result("how many days between the dawn and the dusk", part * (100_000 // len(part)))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("how many weeks are there between 1 March 2024 and 12 April 2024?", "6 weeks (42 days) from 1 March 2024"),
        ("how many days from 1 March to 12 April 2024", "42 days"),
        ("days between 1 March 2024 and 12 April 2024?", "42 days"),
        ("how old is a person born on 4 May 1990?", "36 years and 204 days"),
        ("which day is in 3 weeks", "15 December 2026 (Tuesday)"),
        ("How many months between 31 January 2024 and 12 March 2024?", "1 month and 12 days (41 days)"),
        ("How many days until Christmas?", "31 days from 24 November 2026"),
        ("how many days until 3 May?", "160 days from 24 November 2026 to 3 May 2027"),
        ("how many years ago was 3 May 1980", "46 years and 205 days"),
        ("What day of the week is 3 May 2026?", "3 May 2026 is a Sunday"),
        ("What date is 30 days after 14 May 2024?", "13 June 2024 (Thursday)"),
        ("what is the date 3 months before 31 May 2024", "29 February 2024 (Thursday)"),
    ],
)
def test_dates_of_a_question_are_calculated_with(question: str, expected: str) -> None:
    assert result(question).startswith(expected)


def test_days_between_the_dates_of_a_bill_are_counted() -> None:
    question = "how many days after the invoice date is it due?"
    assert result(question, PLUMBER) == "30 days from 14 May 2024 to 13 June 2024"


def test_days_until_a_due_date_in_the_past_say_so() -> None:
    assert result("how many days left to pay this", PLUMBER).endswith("to 13 June 2024, which is in the past")


def test_bill_without_due_date_is_declined() -> None:
    with pytest.raises(InvalidRequest, match="no due date was found"):
        result("how many days until it is due?", "Date 3 May 2024")


def test_date_that_does_not_exist_is_declined() -> None:
    with pytest.raises(InvalidRequest, match="does not exist"):
        result("how many days until 29 February?")


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what is 12 x 30.5 + 2", "368 (12*30.5 + 2)"),
        ("how much is (3+4)*2 divided by 7", "2 ((3+4)*2 / 7)"),
        ("what is 15% of 240", "36 is 15% of 240"),
        ("20% of £12.50?", "£2.50 is 20% of £12.50"),
        ("sum of 12.50, 3.99 and 7", "23.49 is the sum of 12.50, 3.99, 7"),
    ],
)
def test_arithmetic_is_exact(question: str, expected: str) -> None:
    assert result(question) == expected


def test_division_by_zero_is_declined() -> None:
    with pytest.raises(InvalidRequest, match="divides by zero"):
        result("1 / 0 * 3")


# ---------------------------------------------------------------- amounts and dates of texts


@pytest.mark.parametrize(
    ("text", "total"),
    [
        (PLUMBER, "£312.00"),
        ("Subtotal 13.90\nService 1.39\nTOTAL 15.29\nPaid by card ending 4821", "15.29"),
        ("Gesamtbetrag\n1.686,04 €", "€1,686.04"),
        ("Total HT 92,50 €\nTVA 18,50 €\nNet à payer : 111,00 €", "€111.00"),
        ("A ticket to the fair costs $4.", "$4.00"),
        ("Bread £2.00, milk £1.10", "None"),
        ("Please pay to account 73190246", "None"),
    ],
)
def test_total_of_a_bill_is_the_labelled_amount(text: str, total: str) -> None:
    assert str(find_total(text)) == total


def test_amounts_have_values_and_currencies() -> None:
    text = "12.50, 1.234,56 € and 1,234.56 dollars, 2.4 million pounds, 20% on 3 May 2024 at 13:42, 12 CHF"
    found = [str(amount) for amount, _ in find_amounts(text)]
    assert found == ["12.50", "€1,234.56", "$1,234.56", "£2,400,000.00", "12.00 CHF"]


def test_dates_are_read_in_several_forms_and_ambiguous_ones_skipped() -> None:
    text = "1 March, 16.09.2024, 3/4/2024, 13/4/2024, May 3rd, 2024년 5월 3일, 4 avril 2024, 30 February 2024"
    found = [stated.in_year(2026).isoformat() for stated in find_dates(text)]
    assert found == ["2026-03-01", "2024-09-16", "2024-04-13", "2026-05-03", "2024-05-03", "2024-04-04"]


def test_due_and_issue_date_are_told_apart() -> None:
    assert find_due_date(PLUMBER) == date(2024, 6, 13)
    assert find_issue_date(PLUMBER) == date(2024, 5, 14)


def test_task_takes_many_texts_and_reports_details() -> None:
    inputs = {"question": "add them up", "text": [PLUMBER, ELECTRICIAN]}
    outputs = run_lite_task("calculation", "lite/calculation", inputs)
    assert outputs["details"] == {
        "operation": "sum",
        "quantity": "amount",
        "values": ["£312.00", "£287.40"],
        "result": "£599.40",
    }
