"""Detection of quotations."""

import pytest

from services.planner.embedded.quotations import quotations


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ('read "a b" and “c” and „d“ and «e»', ["a b", "c", "d", "e"]),
        ("it's 'so to say' Anna's", ["so to say"]),
        ("‘it’s so’, she said", ["it’s so"]),
        ("run `ls` here", ["ls"]),
        ("```json\n{}\n```", ["{}\n"]),
        ("```a``` and ```b```", ["a", "b"]),
        ("'a\nb' and 'c'", ["c"]),
        ('""', []),
        ("“never closed", []),
        ("“a “b” c”", ["a “b"]),
        ("“open „x“ 'a' \n 'b", ["x", "a"]),
        ("‘ " * 5_000 + "‘a’", [" " + "‘ " * 4_999 + "‘a"]),
        ("'" * 5_001, ["'"]),
    ],
)
def test_quotations_are_found(text: str, quoted: list[str]) -> None:
    assert [text[quotation.inner_start : quotation.inner_end] for quotation in quotations(text)] == quoted


@pytest.mark.parametrize("mark", ["“", "‘", " 'a", "„a", "«"])
def test_text_of_opening_marks_is_searched_once(mark: str) -> None:
    assert len(list(quotations(mark * 300_000))) <= 150_000  # in seconds, where a search for each mark takes hours
