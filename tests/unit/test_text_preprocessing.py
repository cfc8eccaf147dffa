"""Splitting of long texts, reading of tables, and names of languages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experts.host.handler import Media
from experts.text.languages import detect_language, find_language, languages
from experts.text.summarization import truncate_words
from experts.text.tables import Table, read_table
from experts.text.text_chunks import join_short, split_long, split_sentences
from services.common.errors import InvalidRequest


def count(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Smith met J. Doe at 3.30 p.m. It rained.", ["Dr. Smith met J. Doe at 3.30 p.m.", "It rained."]),
        ("Heading\n\nA line.\nAnother", ["Heading", "A line.", "Another"]),
        ("今日は。明日も！", ["今日は。", "明日も！"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("   ", []),
    ],
    ids=range(6),
)
def test_text_is_split_between_sentences(text: str, expected: list[str]) -> None:
    assert [piece.text for piece in split_sentences(text)] == expected


@given(st.text(alphabet=st.sampled_from("aB .!?\n。\t\"'"), max_size=60))
def test_joined_pieces_equal_the_text(text: str) -> None:
    pieces = split_sentences(text)
    assert "".join(piece.text + piece.gap for piece in pieces).strip() == text.strip()
    short = split_long(pieces, count, 2)
    assert "".join(piece.text + piece.gap for piece in short).strip() == text.strip()
    assert all(count(piece.text) <= 2 for piece in short)


def test_adjacent_pieces_are_joined_within_the_limit() -> None:
    assert join_short(split_sentences("a b. c. d e f. g"), count, 3) == ["a b. c.", "d e f.", "g"]


def test_text_without_spaces_is_split_within_the_word() -> None:
    assert all(len(piece.text) <= 8 for piece in split_long(split_sentences("a" * 100), len, 8))


@pytest.mark.parametrize(
    ("text", "max_words", "expected"),
    [("One two. Three four.", 3, "One two."), ("one two three", 2, "one two…"), ("one two", 2, "one two")],
)
def test_summary_is_truncated_after_a_sentence_if_one_ends_in_time(text: str, max_words: int, expected: str) -> None:
    assert truncate_words(text, max_words) == expected


@pytest.mark.parametrize("name", ["German", "german ", "Deutsch", "de", "DE", "de-AT", "de_CH", "deu", "deu_Latn"])
def test_language_is_found_by_name_tag_and_code(name: str) -> None:
    language = find_language(name)
    assert language
    assert language.tag == "de"


@pytest.mark.parametrize(
    ("name", "tag"),
    [("zh-TW", "zh-Hant"), ("Chinese (Simplified)", "zh"), ("nb", "no"), ("pt-BR", "pt"), ("日本語", "ja")],
)
def test_variant_of_a_language_resolves_to_its_tag(name: str, tag: str) -> None:
    language = find_language(name)
    assert language
    assert language.tag == tag


def test_unknown_language_is_not_found() -> None:
    assert find_language("Klingon") is find_language("") is None


def test_every_language_is_found_by_all_its_names() -> None:
    for language in languages().values():
        assert {find_language(name) for name in (language.tag, language.flores, *language.names)} == {language}


def test_language_of_a_text_is_detected_among_the_candidates() -> None:
    text = "Guten Morgen, wie geht es Ihnen heute?"
    assert detect_language(text, ["en", "de", "fr"]) == "de"
    assert detect_language(text, ["en", "fr"]) in {"en", "fr"}
    assert detect_language(text, ["ceb"]) is None


@pytest.mark.parametrize(
    "table",
    [
        "a,b\n1,2\n",
        "a;b\r\n1;2",
        "a\tb\n1\t2",
        '\ufeff"a","b"\n"1","2"\n\n',
        [{"a": 1, "b": 2}],
        [["a", "b"], [1, 2]],
        {"a": [1], "b": [2]},
        {"columns": ["a", "b"], "rows": [[1, 2]]},
        {"columns": ["a", "b"], "data": [[1, 2]]},
    ],
    ids=range(9),
)
def test_table_is_read_from_csv_and_json_variants(table: object) -> None:
    if isinstance(table, str):
        result = read_table(Media(table.encode(), "text/csv", "t.csv"))
    else:
        result = read_table(Media(json.dumps(table).encode(), "application/json", "t.json"))
    assert result.header == ["a", "b"]
    assert result.rows == [["1", "2"]]


def test_missing_and_non_text_cells_are_converted_to_text() -> None:
    table = [{"a": None, "b": True}, {"b": 1.5, "c": "x"}]
    result = read_table(Media(json.dumps(table).encode(), "application/json", "t.json"))
    assert result.rows == [["", "true", ""], ["", "1.5", "x"]]


def test_duplicate_columns_are_numbered() -> None:
    assert read_table(Media(b"a,a\n1\n", "text/csv", "t.csv")).header == ["a", "a 2"]


@given(st.binary(max_size=80), st.sampled_from(["text/csv", "application/json", "text/plain"]))
def test_arbitrary_table_is_read_or_rejected_with_its_port(content: bytes, media_type: str) -> None:
    result: Table | InvalidRequest
    try:
        result = read_table(Media(content, media_type, "t"))
    except InvalidRequest as error:
        result = error
    if isinstance(result, InvalidRequest):
        assert result.port == "table"
        assert result.remedy
    else:
        assert all(len(row) == len(result.header) for row in result.rows)
