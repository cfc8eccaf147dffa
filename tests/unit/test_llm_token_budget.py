"""Token estimates, and selection of the parts that fit in a budget."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from services.llm.prompt import Message
from services.llm.token_budget import (
    IMAGE_TOKENS,
    MAX_FACTOR,
    MESSAGE_TOKENS,
    MIN_FACTOR,
    REPLY_TOKENS,
    Part,
    TokenEstimator,
    fit_to_budget,
    raw_estimate,
)

bounded = hypothesis_settings(max_examples=100, deadline=None, derandomize=True, database=None)

PROMPT = [Message("system", "You plan tasks."), Message("user", "Describe the picture, then read it aloud.")]


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("a", 1, 2),
        ("The quick brown fox jumps over the lazy dog.", 9, 14),
        ("internationalization", 4, 6),
        ("3.14159", 7, 7),
        ('{"id": 0, "dep": [-1]}', 9, 18),
        ("Die größte Straße", 5, 12),
        ("Прочитай текст на картинке", 9, 18),
        ("画像の文字を読んでください", 13, 20),
        ("이 그림을 설명해 주세요", 9, 18),
        ("🙂🙂", 4, 6),
        ("-" * 80, 1, 20),
        (" " * 80, 1, 20),
    ],
)
def test_estimate_of_every_script_is_in_range(text: str, least: float, most: float) -> None:
    assert least <= raw_estimate(text) <= most


@bounded
@given(some.text(), some.text())
def test_longer_text_never_has_fewer_tokens(first: str, second: str) -> None:
    assert 0 <= TokenEstimator().tokens(first) <= TokenEstimator().tokens(first + " " + second) + 1


@bounded
@given(some.text(alphabet=some.characters(min_codepoint=ord("a"), max_codepoint=ord("z")), min_size=1))
def test_word_has_token_per_four_letters_and_at_least_1_3(word: str) -> None:
    assert raw_estimate(word) == max(1.3, len(word) / 4)


def test_higher_report_applies_at_once_and_lower_one_gradually() -> None:
    estimate = TokenEstimator()
    before = estimate.prompt(PROMPT)
    estimate.calibrate(PROMPT, 2 * before)
    assert estimate.prompt(PROMPT) == pytest.approx(2 * before, abs=2)
    estimate.calibrate(PROMPT, before)
    assert estimate.prompt(PROMPT) > 1.8 * before
    for _ in range(100):
        estimate.calibrate(PROMPT, before)
    assert estimate.prompt(PROMPT) == pytest.approx(before, abs=2)


@bounded
@given(some.lists(some.integers(min_value=1, max_value=10**9)))
def test_factor_stays_within_bounds(reports: list[int]) -> None:
    estimate = TokenEstimator()
    for reported in reports:
        estimate.calibrate(PROMPT, reported)
    assert MIN_FACTOR <= estimate.factor <= MAX_FACTOR


def test_report_explained_by_schema_does_not_change_factor() -> None:
    estimate, schema = TokenEstimator(), '{"type": "object"}' * 20
    for reported in (estimate.prompt(PROMPT), estimate.prompt(PROMPT) + round(raw_estimate(schema))):
        estimate.calibrate(PROMPT, reported, schema=schema)
        assert estimate.factor == pytest.approx(1, abs=0.05)


def test_prompt_estimate_includes_template_tokens() -> None:
    assert TokenEstimator().prompt([Message("user", "")] * 3) == 3 * MESSAGE_TOKENS + REPLY_TOKENS


def test_prompt_estimate_includes_images() -> None:
    assert TokenEstimator().prompt([Message("user", "", ("data:",) * 2)]) == (
        2 * IMAGE_TOKENS + MESSAGE_TOKENS + REPLY_TOKENS
    )


def parts(*values: float, text: str = "four") -> list[Part[int]]:
    return [Part(number, text, value) for number, value in enumerate(values)]


def included(pieces: list[Part[int]], budget: int) -> list[int]:
    return [part.item for part in fit_to_budget(pieces, budget, len).included]


def test_parts_of_highest_priority_are_included_in_order() -> None:
    assert included(parts(3, 1, 2), 8) == [0, 2]


def test_later_part_is_included_at_equal_priority() -> None:
    assert included(parts(1, 1, 1), 8) == [1, 2]


def test_part_longer_than_budget_does_not_block_others() -> None:
    pieces = [Part(0, "short", 1.0), Part(1, "very very long", 2.0)]
    assert included(pieces, 6) == [0]


@bounded
@given(some.lists(some.tuples(some.text(max_size=20), some.floats(0, 1))), some.integers(0, 60))
def test_included_parts_fit_budget_and_no_part_is_lost(given_parts: list[tuple[str, float]], budget: int) -> None:
    pieces = [Part(number, text, value) for number, (text, value) in enumerate(given_parts)]
    result = fit_to_budget(pieces, budget, len)
    assert result.tokens == sum(len(part.text) for part in result.included) <= budget
    assert sorted([*result.included, *result.omitted], key=lambda part: part.item) == pieces
    assert list(result.included) == sorted(result.included, key=lambda part: part.item)
