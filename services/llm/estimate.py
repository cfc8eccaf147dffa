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

_PIECES = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<other>[^\x00-\x7f])"
    r"|(?P<run>([!-/:-@\[-^`{-~])\4+|[ \t]{2,}|\n\s*)"
    r"|(?P<one>[0-9_]|[^\w\s])"
)

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
    return math.fsum(_weight(piece) for piece in _PIECES.finditer(text))


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
        low, high = reported / (_prompt(messages) + raw(beside)), reported / _prompt(messages)
        seen = min(MOST, max(LEAST, min(high, max(low, self.factor))))
        self.factor = seen if seen > self.factor else self.factor + SLOWLY * (seen - self.factor)


def _prompt(messages: Sequence[Message]) -> float:
    return math.fsum(raw(message.content) + MESSAGE_TOKENS for message in messages) + REPLY_TOKENS


def _weight(piece: re.Match[str]) -> float:
    length = piece.end() - piece.start()
    match piece.lastgroup:
        case "word":
            return max(TOKENS_PER_WORD, length / LETTERS_PER_TOKEN)
        case "run":
            return max(1.0, length / LETTERS_PER_TOKEN)
        case "one":
            return 1.0
        case _:
            return _CLASSES[bisect_right(_STARTS, ord(piece.group())) - 1][1]
