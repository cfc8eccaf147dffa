"""Long texts in pieces, tables of any form, and languages by any name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experts.host.handler import Media
from experts.text.languages import languages, named, recognised
from experts.text.summarization import shortened
from experts.text.table_input import Grid, read_grid
from experts.text.text_chunks import fitted, packed, sentences
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
def test_a_text_is_cut_between_sentences(text: str, expected: list[str]) -> None:
    assert [piece.text for piece in sentences(text)] == expected


@given(st.text(alphabet=st.sampled_from("aB .!?\n。\t\"'"), max_size=60))
def test_the_pieces_are_the_text(text: str) -> None:
    pieces = sentences(text)
    assert "".join(piece.text + piece.gap for piece in pieces).strip() == text.strip()
    cut = fitted(pieces, count, 2)
    assert "".join(piece.text + piece.gap for piece in cut).strip() == text.strip()
    assert all(count(piece.text) <= 2 for piece in cut)


def test_neighbours_go_together_as_long_as_they_fit() -> None:
    assert packed(sentences("a b. c. d e f. g"), count, 3) == ["a b. c.", "d e f.", "g"]


def test_what_has_no_spaces_is_cut_all_the_same() -> None:
    assert all(len(piece.text) <= 8 for piece in fitted(sentences("a" * 100), len, 8))


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [("One two. Three four.", 3, "One two."), ("one two three", 2, "one two…"), ("one two", 2, "one two")],
)
def test_a_summary_is_cut_after_a_sentence_if_one_ends_in_time(text: str, most: int, expected: str) -> None:
    assert shortened(text, most) == expected


@pytest.mark.parametrize("said", ["German", "german ", "Deutsch", "de", "DE", "de-AT", "de_CH", "deu", "deu_Latn"])
def test_a_language_goes_by_many_names(said: str) -> None:
    language = named(said)
    assert language
    assert language.tag == "de"


@pytest.mark.parametrize(
    ("said", "tag"),
    [("zh-TW", "zh-Hant"), ("Chinese (Simplified)", "zh"), ("nb", "no"), ("pt-BR", "pt"), ("日本語", "ja")],
)
def test_variants_of_a_language_are_told_apart_where_they_matter(said: str, tag: str) -> None:
    language = named(said)
    assert language
    assert language.tag == tag


def test_an_unknown_language_is_none() -> None:
    assert named("Klingon") is named("") is None


def test_every_language_is_found_by_all_its_names_and_only_by_them() -> None:
    for language in languages().values():
        assert {named(name) for name in (language.tag, language.flores, *language.names)} == {language}


def test_the_language_of_a_text_is_recognised_among_those_that_are_asked_for() -> None:
    text = "Guten Morgen, wie geht es Ihnen heute?"
    assert recognised(text, ["en", "de", "fr"]) == "de"
    assert recognised(text, ["en", "fr"]) in {"en", "fr"}
    assert recognised(text, ["ceb"]) is None


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
def test_a_table_may_come_in_many_forms(table: object) -> None:
    if isinstance(table, str):
        grid = read_grid(Media(table.encode(), "text/csv", "t.csv"))
    else:
        grid = read_grid(Media(json.dumps(table).encode(), "application/json", "t.json"))
    assert (grid.header, grid.rows) == (["a", "b"], [["1", "2"]])


def test_cells_that_are_missing_or_no_text_are_written_as_text() -> None:
    table = [{"a": None, "b": True}, {"b": 1.5, "c": "x"}]
    grid = read_grid(Media(json.dumps(table).encode(), "application/json", "t.json"))
    assert grid.rows == [["", "true", ""], ["", "1.5", "x"]]
    assert read_grid(Media(b"a,a\n1\n", "text/csv", "t.csv")).header == ["a", "a 2"]


@given(st.binary(max_size=80), st.sampled_from(["text/csv", "application/json", "text/plain"]))
def test_whatever_comes_is_read_or_refused_by_port(content: bytes, media_type: str) -> None:
    grid: Grid | InvalidRequest
    try:
        grid = read_grid(Media(content, media_type, "t"))
    except InvalidRequest as error:
        grid = error
    if isinstance(grid, InvalidRequest):
        assert (grid.port, bool(grid.remedy)) == ("table", True)
    else:
        assert all(len(row) == len(grid.header) for row in grid.rows)
