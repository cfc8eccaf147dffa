"""Tokenizes texts for encoders; a text too long for one row is split into overlapping windows."""

import inspect
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from experts.torch_host.token_limits import MAX_CHARACTERS_PER_TOKEN, max_input_tokens
from services.common.errors import FailedPrecondition, InvalidRequest

MAX_WINDOWS = 64
"""Maximum windows of one text."""
_UNLIMITED = 1_000_000


@dataclass(frozen=True)
class Window:
    """One row of tokens with their positions in the text."""

    row: dict[str, list[int]]
    offsets: list[tuple[int, int]]
    """Start and exclusive end of each token, in characters."""
    words: list[int | None]
    """Index of each token's word; None for special tokens."""
    parts: list[int | None]
    """0 for tokens of the first text, 1 for those of the second; None for special tokens."""

    @property
    def length(self) -> int:
        return len(self.row["input_ids"])


class WindowTokenizer:
    """Splits texts, or pairs of texts, into windows; callable from several threads."""

    def __init__(
        self,
        tokenizer: Any,
        model: Any,
        model_id: str,
        *,
        cut_first: bool = True,
        recommended_tokens: int | None = None,
    ) -> None:
        """Prepares the tokenizer of a model.

        Args:
            tokenizer: the model's tokenizer.
            model: the model that receives the windows.
            model_id: for messages.
            cut_first: of a pair of texts, the first is split over the windows and the second is whole in each; with
                False the reverse.
            recommended_tokens: tokens in a window, if its authors recommend fewer than the model accepts.

        Raises:
            FailedPrecondition: LOAD_FAILED, the tokenizer does not return the positions of tokens.
        """
        if not tokenizer.is_fast:
            raise FailedPrecondition(
                f"{model_id} has a tokenizer that does not return the positions of its tokens",
                reason="LOAD_FAILED",
                remedy="use a model with a tokenizer.json",
            )
        self.model_id, self.pad_id = model_id, tokenizer.pad_token_id or 0
        self.max_tokens = min(max_input_tokens(tokenizer, model.config), recommended_tokens or _UNLIMITED)
        self._has_token_types = "token_type_ids" in inspect.signature(model.forward).parameters
        self._cuts_first = cut_first
        self._engine, self._truncating_engine = _copy_engines(
            tokenizer, self.max_tokens, "only_first" if cut_first else "only_second"
        )

    def split(self, first: str, second: str | None = None, port: str = "text") -> list[Window]:
        """Splits a text, or a pair of texts, into windows; the port is that of the text which is split.

        Raises:
            InvalidRequest: TOO_LARGE, naming the port.
        """
        limit, text = MAX_WINDOWS * self.max_tokens, first if self._cuts_first or second is None else second
        if len(text) > limit * MAX_CHARACTERS_PER_TOKEN:
            raise too_large_error(self.model_id, port, f"{len(text)} characters", f"about {limit} tokens")
        encoding = self._truncating_engine.encode(first, second)
        windows = [encoding, *encoding.overflowing]
        if len(windows) > MAX_WINDOWS:
            raise too_large_error(self.model_id, port, f"{self.count(text)} tokens", f"about {limit}")
        return [self._window(window) for window in windows]

    def count(self, text: str) -> int:
        """Counts the tokens of a text, without special ones."""
        return len(self._engine.encode(text, add_special_tokens=False).ids)

    def check_length(self, text: str, name: str, port: str = "") -> None:
        """Checks that a text to be whole in each window leaves half of the window to the text that is split.

        Raises:
            InvalidRequest: TOO_LARGE, naming the port.
        """
        limit = self.max_tokens // 2
        has_too_many_characters = len(text) > limit * MAX_CHARACTERS_PER_TOKEN
        if has_too_many_characters or self.count(text) > limit:
            size = f"{len(text)} characters" if has_too_many_characters else f"{self.count(text)} tokens"
            raise too_large_error(self.model_id, port or name, size, f"{limit} tokens", name)

    def _window(self, encoding: Any) -> Window:
        row = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
        if self._has_token_types:
            row["token_type_ids"] = encoding.type_ids
        return Window(row, encoding.offsets, encoding.word_ids, encoding.sequence_ids)


def _copy_engines(tokenizer: Any, max_tokens: int, strategy: str) -> tuple[Any, Any]:
    """Copies a tokenizer's engine twice, without and with truncation: threads share them, so settings never change."""
    plain, truncating = deepcopy(tokenizer.backend_tokenizer), deepcopy(tokenizer.backend_tokenizer)
    for engine in (plain, truncating):
        engine.no_padding()
        engine.no_truncation()
    truncating.enable_truncation(max_tokens, stride=max_tokens // 8, strategy=strategy)
    return plain, truncating


def too_large_error(model_id: str, port: str, size: str, limit: str, name: str = "") -> InvalidRequest:
    """Returns the error for an input that is too long; the name replaces the port in the message."""
    return InvalidRequest(
        f"the {name or port} has {size}; the limit of {model_id} is {limit}",
        port=port,
        reason="TOO_LARGE",
        remedy="shorten it, or send it in parts",
    )


def weighted_mean(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Returns the weighted mean of each column."""
    total = sum(weights)
    return [
        sum(value * weight for value, weight in zip(column, weights, strict=True)) / total
        for column in zip(*rows, strict=True)
    ]
