"""Texts as rows of tokens for encoders: a text too long for one row is read in windows that overlap."""

import inspect
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from experts.torch_host.token_limits import max_input_tokens
from services.common.errors import FailedPrecondition, InvalidRequest

MOST_WINDOWS = 64
"""Of one text; longer ones are refused."""
_UNLIMITED = 1_000_000
_CHARACTERS_PER_TOKEN = 24
"""More than any prose has: what is longer than that is refused before it is read."""


@dataclass(frozen=True)
class Window:
    """One row of tokens, and where in the text each of them stands."""

    row: dict[str, list[int]]
    offsets: list[tuple[int, int]]
    """First character and the one after the last."""
    words: list[int | None]
    """Number of the word it belongs to; None for special tokens."""
    parts: list[int | None]
    """0 for the text, 1 for what was paired with it; None for special tokens."""

    @property
    def length(self) -> int:
        return len(self.row["input_ids"])


class Reader:
    """Turns texts into windows; callable from several threads."""

    def __init__(
        self, tokenizer: Any, model: Any, model_id: str, *, keep_second_whole: bool = True, most: int | None = None
    ) -> None:
        """Of a pair of texts, one is whole in every window and the other is cut.

        Args:
            tokenizer: the model's.
            model: for whom it reads.
            model_id: for messages.
            keep_second_whole: or the first.
            most: tokens in a window, where its makers advise fewer than it could take.

        Raises:
            FailedPrecondition: LOAD_FAILED, the tokenizer cannot say where tokens stand.
        """
        if not tokenizer.is_fast:
            raise FailedPrecondition(
                f"{model_id} has a tokenizer that does not tell where its tokens stand",
                reason="LOAD_FAILED",
                remedy="take a model with a tokenizer.json",
            )
        self.model_id, self.pad_id = model_id, tokenizer.pad_token_id or 0
        self.longest = min(max_input_tokens(tokenizer, model.config), most or _UNLIMITED)
        self._typed, self._keeps_second = (
            "token_type_ids" in inspect.signature(model.forward).parameters,
            keep_second_whole,
        )
        self._plain, self._cut = _copies(tokenizer, self.longest, "only_first" if keep_second_whole else "only_second")

    def windows(self, first: str, second: str | None = None, port: str = "text") -> list[Window]:
        """The windows of a text, or of a pair; the port is that of the one which is cut.

        Raises:
            InvalidRequest: TOO_LARGE, naming the port.
        """
        most, text = MOST_WINDOWS * self.longest, first if self._keeps_second or second is None else second
        if len(text) > most * _CHARACTERS_PER_TOKEN:
            raise too_long(self.model_id, port, f"{len(text)} characters", f"about {most} tokens")
        encoding = self._cut.encode(first, second)
        windows = [encoding, *encoding.overflowing]
        if len(windows) > MOST_WINDOWS:
            raise too_long(self.model_id, port, f"{self.count(text)} tokens", f"about {most}")
        return [self._window(window) for window in windows]

    def count(self, text: str) -> int:
        """Tokens of a text, without special ones."""
        return len(self._plain.encode(text, add_special_tokens=False).ids)

    def check_short(self, text: str, what: str, port: str = "") -> None:
        """Complains of what has to fit beside a text if it would take more than half of a window."""
        most = self.longest // 2
        long = len(text) > most * _CHARACTERS_PER_TOKEN
        if long or self.count(text) > most:
            has = f"{len(text)} characters" if long else f"{self.count(text)} tokens"
            raise too_long(self.model_id, port or what, has, f"{most} tokens", what)

    def _window(self, encoding: Any) -> Window:
        row = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
        if self._typed:
            row["token_type_ids"] = encoding.type_ids
        return Window(row, encoding.offsets, encoding.word_ids, encoding.sequence_ids)


def _copies(tokenizer: Any, most: int, cut: str) -> tuple[Any, Any]:
    """The engine of a tokenizer, plain and cutting: each its own, since no thread may change one under another."""
    plain, cutting = deepcopy(tokenizer.backend_tokenizer), deepcopy(tokenizer.backend_tokenizer)
    for engine in (plain, cutting):
        engine.no_padding()
        engine.no_truncation()
    cutting.enable_truncation(most, stride=most // 8, strategy=cut)
    return plain, cutting


def too_long(model_id: str, port: str, has: str, most: str, what: str = "") -> InvalidRequest:
    """Complains of the text on a port, or of something else."""
    return InvalidRequest(
        f"the {what or port} has {has}, {model_id} takes {most}",
        port=port,
        reason="TOO_LARGE",
        remedy="send a shorter one, or send it in parts",
    )


def mean(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """The weighted mean of rows of numbers."""
    total = sum(weights)
    return [
        sum(value * weight for value, weight in zip(column, weights, strict=True)) / total
        for column in zip(*rows, strict=True)
    ]
