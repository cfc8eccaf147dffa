"""How many tokens a text takes, without the tokenizer of the model, which the house does not have."""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence

from services.llm.messages import Message

LETTERS_PER_TOKEN, TOKENS_PER_WORD = 4, 1.3
"""English as the makers of byte-pair vocabularies put it: a token is four letters, or three quarters of a word."""

MESSAGE_TOKENS, REPLY_TOKENS = 4, 3
"""What chat templates put around every message, and before the answer."""

LEAST, MOST = 0.6, 3.0
"""Bounds of the correction: servers that cut prompts, or count only what they had not cached, report too little."""

SLOWLY = 0.1
"""How much of a lower figure is believed at a time; a higher one is believed at once."""

_WORD = re.compile(r"[A-Za-z]+")
_LONG = re.compile(rf"[A-Za-z]{{{math.ceil(LETTERS_PER_TOKEN * TOKENS_PER_WORD)},}}")
_SIGN = re.compile(r"[!-@\[-`{-~]")
_SIGNS = re.compile(r"([!-/:-@\[-`{-~])\1+")
_SPACE = re.compile(r"[ \t]{2,}|\n\s*")
_OTHER = re.compile(r"[^\x00-\x7f]")

_CLASSES: Sequence[tuple[int, float]] = (
    (0x0080, 1.0),  # accented Latin: breaks the word it stands in
    (0x0370, 0.6),  # Greek, Cyrillic, Hebrew: two bytes each, words of two or three pieces
    (0x0600, 0.9),  # Arabic
    (0x0700, 1.5),  # Indic, Thai and their neighbours: three bytes each, seldom merged
    (0x2000, 1.0),  # typographic signs
    (0x2E80, 1.4),  # Chinese, Japanese, Korean: a sign or syllable is one token, or its bytes
    (0xD800, 3.0),  # emoji and rare scripts: three or four bytes, seldom merged
)
"""First code point of a class, and tokens per character in it: high readings of published byte-pair vocabularies."""

_STARTS = [start for start, _ in _CLASSES]


def raw(text: str) -> float:
    """Tokens of a text before any correction; every class of signs is rated high, so that budgets hold."""
    tokens = _words(text) + len(_SIGN.findall(text))
    tokens += sum(_run(found) - len(found[0]) for found in _SIGNS.finditer(text))
    tokens += sum(map(_run, _SPACE.finditer(text)))
    return tokens if text.isascii() else tokens + sum(map(_rare, _OTHER.findall(text)))


class Estimate:
    """An estimate for one model that learns from what its endpoint reports."""

    def __init__(self) -> None:
        self.factor = 1.0
        """What raw estimates are multiplied with, between LEAST and MOST."""

    def tokens(self, text: str) -> int:
        """Of a text."""
        return math.ceil(raw(text) * self.factor)

    def prompt(self, messages: Sequence[Message]) -> int:
        """Of a whole prompt, with what the chat template adds."""
        return math.ceil(_prompt(messages) * self.factor)

    def learn(self, messages: Sequence[Message], reported: int, *, beside: str = "") -> None:
        """Corrects itself, no further than needed, by what the endpoint says the prompt took.

        Args:
            messages: the prompt.
            reported: its tokens.
            beside: what some endpoints count as prompt and others do not, as a schema.
        """
        prompt = _prompt(messages)
        low, high = reported / (prompt + raw(beside)), reported / prompt
        seen = min(MOST, max(LEAST, min(high, max(low, self.factor))))
        self.factor = seen if seen > self.factor else self.factor + SLOWLY * (seen - self.factor)


def _prompt(messages: Sequence[Message]) -> float:
    return math.fsum(raw(message.content) + MESSAGE_TOKENS for message in messages) + REPLY_TOKENS


def _words(text: str) -> float:
    long = _LONG.findall(text)
    short = len(_WORD.findall(text)) - len(long)
    return short * TOKENS_PER_WORD + sum(map(len, long)) / LETTERS_PER_TOKEN


def _run(found: re.Match[str]) -> float:
    """Of one sign many times over, or of space."""
    return max(1.0, len(found[0]) / LETTERS_PER_TOKEN)


def _rare(character: str) -> float:
    return _CLASSES[bisect_right(_STARTS, ord(character)) - 1][1]
