"""Counts of the lite expert: words, characters, sentences, paragraphs, lines, pages."""

import pytest

from experts.lite.text_statistics import count_words
from tests.support.samples import run_lite_task, sample


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world - it's 3.5!", 4),
        ("", 0),
        (" - … ", 0),
        ("Straße, über-groß", 2),
        ("这篇文章", 4),
        ("东京 Tower は", 4),
        ("안녕 세상", 2),
    ],
)
def test_words_are_counted_as_in_editors(text: str, words: int) -> None:
    assert count_words(text) == words


def test_statistics_of_a_text_count_everything() -> None:
    text = "One two. Three?\n\nFour\n"
    outputs = run_lite_task("text-statistics", "lite/text-statistics", {"text": text})
    assert outputs["statistics"] == {
        "words": 4,
        "characters": 22,
        "characters_without_spaces": 17,
        "sentences": 3,
        "paragraphs": 2,
        "lines": 3,
        "empty_lines": 1,
    }
    assert outputs["text"] == (
        "4 words, 22 characters (17 without spaces), 3 sentences, 2 paragraphs, 3 lines (1 of them empty)"
    )


def test_single_unit_is_singular() -> None:
    outputs = run_lite_task("text-statistics", "lite/text-statistics", {"text": "a"})
    assert outputs["text"] == "1 word, 1 character (1 without spaces), 1 sentence, 1 paragraph, 1 line"


def test_empty_text_has_no_words() -> None:
    assert run_lite_task("text-statistics", "lite/text-statistics", {"text": ""})["statistics"]["words"] == 0


@pytest.mark.parametrize(("name", "pages"), [("letter.pdf", 2), ("sign.png", 1)])
def test_pages_of_a_document_are_counted(name: str, pages: int) -> None:
    outputs = run_lite_task("page-count", "lite/page-count", {"image": sample(name)})
    assert outputs["statistics"] == {"pages": pages}
    assert outputs["text"] == ("1 page" if pages == 1 else f"{pages} pages")
