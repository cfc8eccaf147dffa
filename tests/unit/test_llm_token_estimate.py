"""How many tokens a text takes."""

import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as some

from services.llm.messages import Message
from services.llm.token_estimate import LEAST, MESSAGE_TOKENS, MOST, REPLY_TOKENS, Estimate, raw

bounded = trying(max_examples=100, deadline=None, derandomize=True, database=None)

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
def test_every_script_is_rated_as_its_signs_are(text: str, least: float, most: float) -> None:
    assert least <= raw(text) <= most


@bounded
@given(some.text(), some.text())
def test_more_text_never_takes_fewer_tokens(first: str, second: str) -> None:
    assert 0 <= Estimate().tokens(first) <= Estimate().tokens(first + " " + second) + 1


@bounded
@given(some.text(alphabet=some.characters(min_codepoint=ord("a"), max_codepoint=ord("z")), min_size=1))
def test_words_take_a_quarter_of_their_letters_and_at_least_1_3(word: str) -> None:
    assert raw(word) == max(1.3, len(word) / 4)


def test_a_higher_figure_is_believed_at_once_and_a_lower_one_slowly() -> None:
    estimate = Estimate()
    before = estimate.prompt(PROMPT)
    estimate.learn(PROMPT, 2 * before)
    assert estimate.prompt(PROMPT) == pytest.approx(2 * before, abs=2)
    estimate.learn(PROMPT, before)
    assert estimate.prompt(PROMPT) > 1.8 * before
    for _ in range(100):
        estimate.learn(PROMPT, before)
    assert estimate.prompt(PROMPT) == pytest.approx(before, abs=2)


@bounded
@given(some.lists(some.integers(min_value=1, max_value=10**9)))
def test_no_report_bends_it_beyond_its_bounds(reports: list[int]) -> None:
    estimate = Estimate()
    for reported in reports:
        estimate.learn(PROMPT, reported)
    assert LEAST <= estimate.factor <= MOST


def test_a_schema_that_may_or_may_not_count_as_prompt_proves_nothing() -> None:
    estimate, schema = Estimate(), '{"type": "object"}' * 20
    for reported in (estimate.prompt(PROMPT), estimate.prompt(PROMPT) + round(raw(schema))):
        estimate.learn(PROMPT, reported, beside=schema)
        assert estimate.factor == pytest.approx(1, abs=0.05)


def test_a_prompt_is_its_messages_and_what_stands_around_them() -> None:
    assert Estimate().prompt([Message("user", "")] * 3) == 3 * MESSAGE_TOKENS + REPLY_TOKENS
