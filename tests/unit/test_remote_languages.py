"""Source languages of translations that name only a target."""

import pytest

from experts.remote.languages import add_source_language, detect_language


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("Good morning, how are you?", "en"),
        ("Das Haus ist groß und alt.", "de"),
        ("Où est la gare, s'il vous plaît ?", "fr"),
        ("駅はどこですか", "ja"),
    ],
)
def test_language_of_a_text_is_detected(text: str, tag: str) -> None:
    assert detect_language(text) == tag


def test_source_is_one_of_the_models_languages() -> None:
    completed = add_source_language({"text": "Hello"}, {"target_language": "de"}, ["en", "de", "fr"])
    assert completed == {"target_language": "de", "source_language": "en"}


def test_source_of_a_model_for_one_pair_is_the_other_language() -> None:
    completed = add_source_language({"text": "OK"}, {"target_language": "en"}, ["zh", "en"])
    assert completed["source_language"] == "zh"


@pytest.mark.parametrize("parameters", [{}, {"source_language": "English", "target_language": "de"}])
def test_other_parameters_are_unchanged(parameters: dict[str, str]) -> None:
    assert add_source_language({"text": "Hello"}, parameters, ["en", "de"]) == parameters
