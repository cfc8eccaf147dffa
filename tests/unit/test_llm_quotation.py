"""Quoted evidence and where it is in a text."""

import pytest

from experts.llm.quotation import find_quotation

TEXT = "Invoice INV-7\nTotal\t42.00 EUR – due “at once”. 我们在上海。 서울에서 만나요."


@pytest.mark.parametrize(
    ("quotation", "found"),
    [
        ("Total 42.00 EUR", "Total\t42.00 EUR"),
        ("TOTAL", "Total"),
        ("inv-7 total", "INV-7\nTotal"),
        ("EUR - due", "EUR – due"),
        ('due "at once"', "due “at once"),
        ('"Invoice INV-7"', "Invoice INV-7"),
        ("Invoice … 42.00", "Invoice INV-7\nTotal\t42.00"),
        ("Invoice [...] EUR", "Invoice INV-7\nTotal\t42.00 EUR"),
        ("在上海", "在上海"),
        ("서울", "서울"),
    ],
)
def test_quotation_is_found_despite_white_space_case_and_signs(quotation: str, found: str) -> None:
    span = find_quotation(quotation, TEXT)
    assert span
    assert TEXT[slice(*span)] == found


@pytest.mark.parametrize("quotation", ["", "…", '""', "nvoice", "Total 43.00", "EUR … Total", "Invoice 42.00"])
def test_words_that_are_not_quoted_are_not_found(quotation: str) -> None:
    assert find_quotation(quotation, TEXT) is None
