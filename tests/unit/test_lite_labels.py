"""Values of forms, tables and lists by what their labels mean, in six languages."""

import time

import pytest

from experts.lite.labelled_fields import find_labelled_value, read_entries
from experts.lite.question_answering import find_answer
from experts.lite.question_types import Question

PAYSLIP = (
    "Pay advice\n\nName\tMarcus Tully\nDate paid\t29 May 2026\n\n"
    "Gross pay\t2,130.00\nUnion fee\t12.00\nNet pay\t1,807.48"
)
LEASE = (
    "Key facts\n\nLandlord\tMerlin Homes Ltd\nStart date\t1 August 2026\nEnd date\t31 July 2027\n"
    "Monthly rent\t£875.00\nDeposit\t£1,000.00\nNotice period\t2 months"
)
JOURNEY_FR = (
    "Billet\n\nAller\t24 avril 2026\nDépart de Bordeaux\t9h32\nVoiture 3\tPlace 27\n\n"
    "Retour\t27 avril 2026\nDépart de Paris\t18h14\nVoiture 8\tPlace 61"
)
LOHN = "Lohnabrechnung\n\nBruttolohn\t2.850,00 €\nNettolohn\t2.101,09 €\nAuszahlung am\t31.03.2026\nResturlaub\t14 Tage"
SAILINGS = "Sailing\tDeparts\tArrives\nMorning\t7:40\t9:05\nEvening\t18:50\t20:15"
DELIVERY = (
    "Your order\tKP-5518\nOur order\tSO-22806\nDriver\tColin Baxter\n\n"
    "Router R2, 1 piece\tSerial no. RT-118\nModem M7, 1 piece\tSerial no. MD-902"
)
STATEMENT_KO = "거래내역서\n\n예금주\t박지훈\n기초 잔액\t1,250,000원\n월세\t650,000원\n기말 잔액\t2,968,800원"
PRICES = "Adult day pass\t12.50\nChild day pass\t8.00\nTowel hire\t2.00"

LIBRARY = (
    "CITY LIBRARY\n\nMon - Thu\t9:00 - 19:00\nFriday\t10:00 - 17:30\nSat & Sun\t11am - 4pm\n"
    "Public holidays\tclosed\n\nChildren's hour: Wednesday 15:00 - 16:00"
)

SURE = 0.6


def answer(question: str, text: str) -> str:
    found = find_answer(question, text)
    return found.text if found else ""


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        ("How much did he actually get into his bank account?", PAYSLIP, "1,807.48"),
        ("what's his take-home", PAYSLIP, "1,807.48"),
        ("What did he earn before deductions?", PAYSLIP, "2,130.00"),
        ("when was he paid", PAYSLIP, "29 May 2026"),
        ("how much came off for the union", PAYSLIP, "12.00"),
        ("when does the contract run out", LEASE, "31 July 2027"),
        ("how much notice must I give", LEASE, "2 months"),
        ("Who owns the flat?", LEASE, "Merlin Homes Ltd"),
        ("What do I pay each month?", LEASE, "£875.00"),
        ("Wie hoch ist die Kaution?", LEASE, "£1,000.00"),
        ("À quelle heure part le train du retour ?", JOURNEY_FR, "18h14"),
        ("Quelle est la place à l'aller ?", JOURNEY_FR, "27"),
        ("Wie viel bekommt Jonas ausgezahlt?", LOHN, "2.101,09 €"),
        ("Wie viele Urlaubstage hat er noch?", LOHN, "14 Tage"),
        ("When does the evening ferry get in?", SAILINGS, "20:15"),
        ("what time does the morning boat leave?", SAILINGS, "7:40"),
        ("What is our order number?", DELIVERY, "KP-5518"),
        ("what is the serial number of the modem?", DELIVERY, "MD-902"),
        ("Who brought the parcels?", DELIVERY, "Colin Baxter"),
        ("How much have I already paid?", "Total\t£201.60\nAlready paid\t£150.00\nBalance\t£51.60", "£150.00"),
        ("what did the whole stay cost", "Total\t468.00\nBalance due on arrival\t368.00", "468.00"),
        ("Was kostet die Mitgliedschaft im Monat?", "Monatsbeitrag\t29,90 €\nAufnahmegebühr\t19,00 €", "29,90 €"),
        ("Wann kommt Paul in München an?", "Ab Hamburg\t08:24, Gleis 14\nAn München\t14:02, Gleis 22", "14:02"),
        ("When does Marion check in?", "Arrival\tSat 5 July, from 15:00", "Sat 5 July, from 15:00"),
        ("What time can we check in?", "Arrival\tSat 5 July, from 15:00", "15:00"),
        ("¿Cuánto pesa el envío?", "Bultos\t7\nPeso\t112 kg", "112 kg"),
        ("¿Cuánto sale con IVA incluido?", "Base imponible\t270,00 €\nIVA 21 %\t56,70 €\nTotal\t326,70 €", "326,70 €"),
        ("월세로 얼마 나갔어요?", STATEMENT_KO, "650,000원"),
        ("예금주가 누구예요?", STATEMENT_KO, "박지훈"),
        ("租毛巾要多少钱？", PRICES, "2.00"),
    ],
)
def test_question_is_answered_by_what_a_label_means(question: str, text: str, expected: str) -> None:
    assert answer(question, text) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("wednesday opening hours", "9:00 - 19:00"),
        ("When does the library close on Fridays?", "17:30"),
        ("What time does it open on Saturday?", "11am"),
        ("when can I come in on tuesday, what are the hours", "9:00 - 19:00"),
        ("Bis wann ist am Sonntag offen?", "4pm"),
        ("周五几点关门？", "17:30"),
        ("금요일 영업 시간이 어떻게 되나요?", "10:00 - 17:30"),
    ],
)
def test_opening_hours_are_those_of_the_weekday(question: str, expected: str) -> None:
    assert answer(question, LIBRARY) == expected


def test_weekday_on_which_nothing_is_open_is_answered() -> None:
    text = "Mo, Di, Do\t8-12 und 14-18 Uhr\nMi, Fr\t8-13 Uhr\nSa und So\tgeschlossen"
    assert answer("Ist samstags geöffnet?", text).endswith("geschlossen")
    assert answer("Wann hat die Praxis am Dienstag geöffnet?", text) == "8-12 und 14-18 Uhr"
    shop = "The shop is open on Monday from 9 to 17. On Sunday it is closed."
    assert answer("when is the shop open on sunday?", shop) == "closed"


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("when do they open on christmas", LIBRARY),
        ("What time does the Tuesday tour start?", LIBRARY),
        ("What is his hourly rate?", PAYSLIP),
        ("How much is the deposit for the garage?", LEASE),
        ("What's the difference in monthly rent?", LEASE),
        ("When does the deposit have to be paid?", LEASE),
        ("what is the serial number?", DELIVERY),
        ("How many days are there between start and end?", LEASE),
        ("How much is a dog ticket?", PRICES),
        ("How much did I pay in the end?", "Card ending\t0093\nThank you"),
    ],
)
def test_value_of_another_label_is_at_most_a_guess(question: str, text: str) -> None:
    found = find_answer(question, text)
    assert found is None or found.score < SURE


def test_value_of_a_table_has_the_heading_of_its_column_as_label() -> None:
    labels = {(entry.labels, entry.row): entry.value for entry in read_entries(SAILINGS)}
    assert labels["Arrives", "Evening"] == "20:15"


def test_long_rows_of_labels_are_read_in_time() -> None:
    started = time.monotonic()
    find_labelled_value(Question.parse("What is the deposit?"), "deposit a: b  " * 5_000)
    find_labelled_value(Question.parse("how much " * 100), ("deposit " * 30 + "\n") * 500)
    assert time.monotonic() - started < 10
