"""Similarity of two answers."""

from typing import Any

import pytest

from gateway.client import Artifact
from gateway.comparison.similarity import answer, correctness, similarity


def labels(**scores: float) -> dict[str, Any]:
    listed = [{"label": label, "score": score} for label, score in scores.items()]
    return {"labels": listed, "text": "in words"}


def found(*names: str) -> dict[str, Any]:
    return {"objects": [{"label": name, "score": 0.5, "box": [0, 0, 1, 1]} for name in names], "text": "in words"}


ONE, OTHER = Artifact(sha256="a" * 64), Artifact(sha256="b" * 64)

PAIRS: dict[str, tuple[Any, Any, float | None]] = {
    "the surest label": (labels(happy=0.9, sad=0.1), labels(sad=0.2, happy=0.3), 1),
    "other labels": (labels(happy=0.9), labels(sad=0.9), 0),
    "labels alike are not the same": (labels(dark_blue=0.9), labels(dark_red=0.9), 0),
    "a label in capitals": (labels(POSITIVE=1), labels(positive=1), 1),
    "the same things": (found("face", "cup"), found("cup", "face"), 1),
    "things as often as they come": (found("face", "face"), found("face"), 2 / 3),
    "no things": (found(), found(), 1),
    "no things and one": (found(), found("face"), 0),
    "entities with their words": (
        {"entities": [{"entity": "DATE", "text": "Monday"}]},
        {"entities": [{"entity": "DATE", "text": "Sunday"}]},
        0,
    ),
    "words but for case and punctuation": ({"text": "Hello, World!"}, {"text": "hello world"}, 1),
    "accents in two spellings": ({"text": "caf\u00e9"}, {"text": "cafe\u0301"}, 1),
    "half of the words": ({"text": "one two three four"}, {"text": "one two five six"}, 0.5),
    "a text and nothing": ({"text": "one"}, {"text": ""}, 0),
    "text before what is behind it": ({"text": "yes", "details": {"x": 1}}, {"text": "yes", "details": {"x": 2}}, 1),
    "numbers in words": ({"text": "0.500"}, {"text": "0.5"}, 1),
    "numbers to one in a hundred": ({"scores": [1.0, 100]}, {"scores": [1.001, 100.9]}, 1),
    "half of the numbers": ({"scores": [1, 2]}, {"scores": [1, 3]}, 0.5),
    "fewer numbers": ({"scores": [1, 2]}, {"scores": [1]}, 0.5),
    "true is no number": ({"data": True}, {"data": 1}, 0),
    "maps": ({"data": {"a": 1, "b": "x"}}, {"data": {"a": 1, "b": "y"}}, 0.5),
    "the same file": ({"image": ONE}, {"image": ONE}, 1),
    "two files": ({"image": ONE}, {"image": OTHER}, None),
}


@pytest.mark.parametrize(("one", "other", "expected"), PAIRS.values(), ids=PAIRS)
def test_similarity_of_answers(one: Any, other: Any, expected: float | None) -> None:
    for first, second in ((one, other), (other, one)):
        score = similarity(answer(first).value, answer(second).value)
        assert score == (expected if expected is None else pytest.approx(expected))


RIGHT: dict[str, tuple[Any, str, float | None]] = {
    "a label": (labels(happy=0.9, sad=0.1), " Happy ", 1),
    "a wrong label": (labels(happy=0.9), "sad", 0),
    "a label that is a digit": (labels(**{"7": 0.9}), "7", 1),
    "things by name": (found("face", "cup"), "cup, face", 1),
    "things by number": (found("face", "face"), "2", 1),
    "another number": (found("face", "face"), "3", 0),
    "none": (found(), "", 1),
    "words": ({"text": "We are happy."}, "we are happy", 1),
    "a number": ({"text": "249.5"}, "249.50", 1),
    "a file": ({"image": ONE}, "a cat", None),
}


@pytest.mark.parametrize(("outputs", "label", "expected"), RIGHT.values(), ids=RIGHT)
def test_correctness_is_similarity_to_label(outputs: Any, label: str, expected: float | None) -> None:
    assert correctness(answer(outputs), label) == expected


def test_long_texts_are_compared_in_bounded_time() -> None:
    assert similarity("a b " * 50_000, "b a " * 50_000) == pytest.approx(1, abs=0.01)


def test_shown_text_matches_compared_value() -> None:
    shown = [answer(outputs).shown for outputs in (labels(happy=1), found("b", "a"), found(), {"text": "t"})]
    assert shown == ["happy", "a, b", "none", "t"]
    assert answer({"image": Artifact(sha256="a" * 64, name="x.png")}).shown == "x.png"
