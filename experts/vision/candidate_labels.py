"""Tokens of phrases with the candidate labels of a request."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experts.torch_host.padding import pad_rows
from experts.torch_host.token_limits import max_input_tokens
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import torch


class PhraseTokenizer:
    """Tokenizes phrases to one batch, without changing settings of the tokenizer, which threads share."""

    def __init__(self, tokenizer: Any, config: Any, length: int | None = None) -> None:
        self._tokenizer, self._padded_length = tokenizer, length
        self._max_tokens = length or max_input_tokens(tokenizer, config)

    def tokenize(self, phrases: Sequence[str]) -> dict[str, "torch.Tensor"]:
        """Tokenizes phrases, padded to the longest or to the length that the model was trained with.

        Raises:
            InvalidRequest: a phrase is too long.
        """
        rows = [self._row(phrase) for phrase in phrases]
        return pad_rows(rows, self._tokenizer.pad_token_id or 0)

    def _row(self, phrase: str) -> Mapping[str, list[int]]:
        row = {name: list(values) for name, values in self._tokenizer(phrase).items()}
        count = len(row["input_ids"])
        if count > self._max_tokens:
            raise InvalidRequest(
                f"{phrase[:40]!r} has {count} tokens; the model's limit is {self._max_tokens}",
                remedy="shorten the label",
            )
        if self._padded_length:
            row["input_ids"] += [self._tokenizer.pad_token_id or 0] * (self._padded_length - count)
            return {"input_ids": row["input_ids"]}
        return row
