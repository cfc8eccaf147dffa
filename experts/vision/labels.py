"""Labels that a request names, as tokens."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experts.host.handler import Parameters
from experts.host.parameters import port_of
from experts.torch_host.padding import pad_rows
from experts.torch_host.token_limits import max_input_tokens
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import torch


def candidates(parameters: Parameters, task: str) -> list[str]:
    """The labels of the request, each once.

    Raises:
        InvalidRequest: there are none.
    """
    labels = list(dict.fromkeys(label.strip() for label in parameters.get("candidate_labels", ())))
    if not labels or not all(labels):
        raise InvalidRequest(
            f"{task} needs the parameter candidate_labels: the labels to choose from",
            port=port_of("candidate_labels"),
            remedy='give it, such as ["cat", "dog"]',
        )
    return labels


class Phrases:
    """Phrases about labels as one batch of tokens; always with the same settings of the tokenizer."""

    def __init__(self, tokenizer: Any, config: Any, length: int | None = None) -> None:
        self._tokenizer, self._whole = tokenizer, length
        self._longest = length or max_input_tokens(tokenizer, config)

    def tokens(self, phrases: Sequence[str]) -> dict[str, "torch.Tensor"]:
        """Padded to the longest, or to the length that the model was trained with.

        Raises:
            InvalidRequest: one is too long.
        """
        rows = [self._row(phrase) for phrase in phrases]
        return pad_rows(rows, self._tokenizer.pad_token_id or 0)

    def _row(self, phrase: str) -> Mapping[str, list[int]]:
        row = {name: list(values) for name, values in self._tokenizer(phrase).items()}
        count = len(row["input_ids"])
        if count > self._longest:
            raise InvalidRequest(
                f"{phrase[:40]!r} has {count} tokens, the model takes {self._longest}", remedy="shorten the label"
            )
        if self._whole:
            row["input_ids"] += [self._tokenizer.pad_token_id or 0] * (self._whole - count)
            return {"input_ids": row["input_ids"]}
        return row
