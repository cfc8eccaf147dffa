"""Escaping of cells that a spreadsheet would evaluate."""

import pytest

from gateway.spreadsheets import escape_formula


@pytest.mark.parametrize(
    "text",
    [
        "=1",
        "+1;=2",
        "-1+1",
        "@sum",
        "\t1",
        "\r1",
        "\n=1",
        " =1",
        "\xa0=1",
        "\ufeff=1",
        "\0=1",
        "\u200b@a",
        "\uff1d1",
        "\u3000＋1",
    ],
)
def test_formula_is_escaped_with_an_apostrophe(text: str) -> None:
    assert escape_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a=1", "-12.5e3", "+7", " a", "\ufeffa", "\U0001f600", "1-2"])
def test_other_text_is_not_escaped(text: str) -> None:
    assert escape_formula(text) == text
