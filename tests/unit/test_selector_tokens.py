import pytest

from services.selector.tokens import affirmed, stem, stemmed, stems


@pytest.mark.parametrize(
    "text",
    [
        "face faces",
        "happy happier happiness happily",
        "detect detects detected detector detection",
        "language languages",
        "class classes",
        "blur blurred blurring",
        "translate translates translation translator",
        "positive positively",
    ],
)
def test_forms_of_a_word_share_one_stem(text: str) -> None:
    assert len(stemmed(text)) == 1


@pytest.mark.parametrize("text", ["face people", "language sentiment", "person personal", "read write"])
def test_different_words_have_different_stems(text: str) -> None:
    assert len(stemmed(text)) == 2


def test_stop_words_are_removed() -> None:
    assert stemmed("Please tell me whether it is") == frozenset()


def test_model_names_are_split_into_words() -> None:
    assert stemmed("acme/face_detector-v2") == stemmed("acme face detector v2")


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("Sentiment of English text. Does not tell topics or languages.", {"sentiment", "english", "text"}),
        ("Which language a text is in; cannot tell sentiment: reliable", {"language", "text", "reliable"}),
        ("A rough transcript. No punctuation, no other language.", {"rough", "transcript"}),
    ],
)
def test_negated_clauses_are_ignored(description: str, expected: set[str]) -> None:
    assert stemmed(affirmed(description)) == {stem(word) for word in expected}


def test_stems_come_from_name_and_start_of_description() -> None:
    assert stems("acme/yunet", "Finds faces, not topics.") == stemmed("acme yunet finds faces")
    assert "late" not in stems("m", "word " * 400 + "late")
