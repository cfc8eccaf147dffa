import pytest

from services.selector.tokens import affirmed, stem, stemmed, stems


@pytest.mark.parametrize(
    "written",
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
def test_forms_of_a_word_are_one_word(written: str) -> None:
    assert len(stemmed(written)) == 1


@pytest.mark.parametrize("written", ["face people", "language sentiment", "person personal", "read write"])
def test_different_words_stay_apart(written: str) -> None:
    assert len(stemmed(written)) == 2


def test_what_every_request_says_tells_nothing() -> None:
    assert stemmed("Please tell me whether it is") == frozenset()


def test_names_of_models_fall_into_words() -> None:
    assert stemmed("acme/face_detector-v2") == stemmed("acme face detector v2")


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("Sentiment of English text. Does not tell topics or languages.", {"sentiment", "english", "text"}),
        ("Which language a text is in; cannot tell sentiment: reliable", {"language", "text", "reliable"}),
        ("A rough transcript. No punctuation, no other language.", {"rough", "transcript"}),
    ],
)
def test_what_a_description_denies_does_not_speak_for_it(description: str, said: set[str]) -> None:
    assert stemmed(affirmed(description)) == {stem(word) for word in said}


def test_a_model_is_known_by_its_name_and_by_what_the_first_of_its_many_words_affirm() -> None:
    assert stems("acme/yunet", "Finds faces, not topics.") == stemmed("acme yunet finds faces")
    assert "late" not in stems("m", "word " * 400 + "late")
