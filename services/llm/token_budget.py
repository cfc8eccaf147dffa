"""Token budgets: token counts without the model's tokenizer, which is not available here, and the parts that fit."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.llm.prompt import Message

T = TypeVar("T")

LETTERS_PER_TOKEN, TOKENS_PER_WORD = 4, 1.3
"""Rule of thumb for English and byte-pair vocabularies: a token is four letters, or three quarters of a word."""

MESSAGE_TOKENS, REPLY_TOKENS = 4, 3
"""Tokens that chat templates add for each message, and before the answer."""

IMAGE_TOKENS = 1024
"""Estimate for one image; models use from 256 to a few thousand, by its size."""

MIN_FACTOR, MAX_FACTOR = 0.6, 3.0
"""Bounds of the correction factor: servers that truncate prompts or omit cached tokens report too few."""

DECREASE_RATE = 0.1
"""Share of a lower report by which the factor falls; a higher report raises it at once."""

_WORD = re.compile(r"[A-Za-z]+")
_LONG = re.compile(rf"[A-Za-z]{{{math.ceil(LETTERS_PER_TOKEN * TOKENS_PER_WORD)},}}")
_SIGN = re.compile(r"[!-@\[-`{-~]")
_SIGNS = re.compile(r"([!-/:-@\[-`{-~])\1+")
_SPACE = re.compile(r"[ \t]{2,}|\n\s*")
_OTHER = re.compile(r"[^\x00-\x7f]")

_CLASSES: Sequence[tuple[int, float]] = (
    (0x0080, 1.0),  # accented Latin: splits the word that contains it
    (0x0370, 0.6),  # Greek, Cyrillic, Hebrew: two bytes each, words of two or three pieces
    (0x0600, 0.9),  # Arabic
    (0x0700, 1.5),  # Indic, Thai and their neighbours: three bytes each, seldom merged
    (0x2000, 1.0),  # typographic signs
    (0x2E80, 1.4),  # Chinese, Japanese, Korean: one token per character or syllable, or one per byte
    (0xD800, 3.0),  # emoji and rare scripts: three or four bytes, seldom merged
)
"""First code point of a class, and tokens per character: upper values from published byte-pair vocabularies."""

_STARTS = [start for start, _ in _CLASSES]


def raw_estimate(text: str) -> float:
    """Estimates tokens before correction, rather too high, so that budgets hold."""
    tokens = _word_tokens(text) + len(_SIGN.findall(text))
    tokens += sum(_repetition_tokens(found) - len(found[0]) for found in _SIGNS.finditer(text))
    tokens += sum(map(_repetition_tokens, _SPACE.finditer(text)))
    return tokens if text.isascii() else tokens + sum(map(_character_tokens, _OTHER.findall(text)))


class TokenEstimator:
    """Token estimator for one model, calibrated by the counts that its endpoint reports."""

    def __init__(self) -> None:
        self.factor = 1.0
        """Correction factor of raw estimates, between MIN_FACTOR and MAX_FACTOR."""

    def tokens(self, text: str) -> int:
        """Estimates the tokens of a text."""
        return math.ceil(raw_estimate(text) * self.factor)

    def prompt(self, messages: Sequence[Message]) -> int:
        """Estimates the tokens of a prompt, including those the chat template adds."""
        return math.ceil(_prompt(messages) * self.factor)

    def calibrate(self, messages: Sequence[Message], reported_tokens: int, *, schema: str = "") -> None:
        """Adjusts the factor, no further than needed, to the reported tokens of a prompt.

        Args:
            messages: the prompt.
            reported_tokens: of the prompt.
            schema: JSON schema of the request, which only some endpoints count as part of the prompt.
        """
        prompt = _prompt(messages)
        low, high = reported_tokens / (prompt + raw_estimate(schema)), reported_tokens / prompt
        factor = min(MAX_FACTOR, max(MIN_FACTOR, min(high, max(low, self.factor))))
        self.factor = factor if factor > self.factor else self.factor + DECREASE_RATE * (factor - self.factor)


@dataclass(frozen=True)
class Part(Generic[T]):
    """An optional part of a prompt.

    Args:
        item: the caller's object for the part.
        text: its text in the prompt.
        priority: parts with a lower priority are omitted first.
    """

    item: T
    text: str
    priority: float


@dataclass(frozen=True)
class FittedParts(Generic[T]):
    """Parts selected for a token budget.

    Args:
        included: in their original order.
        omitted: in their original order.
        tokens: of the included parts.
    """

    included: tuple[Part[T], ...]
    omitted: tuple[Part[T], ...]
    tokens: int


def fit_to_budget(parts: Sequence[Part[T]], budget: int, count: Callable[[str], int]) -> FittedParts[T]:
    """Selects the parts of the highest priority that fit in the budget; of equal ones the later part.

    Args:
        parts: in prompt order.
        budget: tokens.
        count: counts the tokens of a text, such as LLM.count_tokens.
    """
    chosen, used = set[int](), 0
    for index in sorted(range(len(parts)), key=lambda index: (-parts[index].priority, -index)):
        if used >= budget:
            break
        tokens = count(parts[index].text)
        if used + tokens <= budget:
            chosen.add(index)
            used += tokens
    included = tuple(part for index, part in enumerate(parts) if index in chosen)
    omitted = tuple(part for index, part in enumerate(parts) if index not in chosen)
    return FittedParts(included, omitted, used)


def _prompt(messages: Sequence[Message]) -> float:
    return math.fsum(map(_message_tokens, messages)) + REPLY_TOKENS


def _message_tokens(message: Message) -> float:
    return raw_estimate(message.content) + IMAGE_TOKENS * len(message.images) + MESSAGE_TOKENS


def _word_tokens(text: str) -> float:
    long = _LONG.findall(text)
    short = len(_WORD.findall(text)) - len(long)
    return short * TOKENS_PER_WORD + sum(map(len, long)) / LETTERS_PER_TOKEN


def _repetition_tokens(found: re.Match[str]) -> float:
    """Estimates the tokens of a repeated character or of whitespace."""
    return max(1.0, len(found[0]) / LETTERS_PER_TOKEN)


def _character_tokens(character: str) -> float:
    return _CLASSES[bisect_right(_STARTS, ord(character)) - 1][1]
