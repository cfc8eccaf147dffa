"""Fill-mask: the most likely words for a masked word."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Window, WindowTokenizer, too_large_error
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

_MASK = re.compile(r"\[MASK\]|<mask>|_{3,}", re.IGNORECASE)
"""Accepted notations of a mask; it is replaced by the model's own mask token."""


@dataclass(frozen=True)
class MaskItem:
    """Text of one call with one mask."""

    text: str
    mask: tuple[int, int]
    """Start and exclusive end of the mask, in characters."""
    window: Window
    top_k: int


def fill_mask(model_id: str, device: str) -> Handler:
    """Loads a masked language model."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return MaskFiller(checkpoint, checkpoint.model(AutoModelForMaskedLM), tokenizer)


class MaskFiller(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._window_tokenizer = tokenizer, WindowTokenizer(tokenizer, model, checkpoint.model_id)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> MaskItem:
        text = inputs["text"]
        masks = list(_MASK.finditer(text))
        if len(masks) != 1:
            raise InvalidRequest(
                f"the text has {len(masks)} masks; it needs exactly one",
                port="text",
                remedy="write [MASK] once, in place of the missing word",
            )
        start, end = masks[0].span()
        windows = self._window_tokenizer.split(text[:start] + self._tokenizer.mask_token + text[end:])
        if len(windows) > 1:
            limit = f"{self._window_tokenizer.max_tokens} tokens"
            raise too_large_error(self.model_id, "text", f"more than {limit}", limit)
        return MaskItem(text, (start, end), windows[0], parameters["top_k"])

    def cost(self, item: MaskItem) -> float:
        return item.window.length

    def run(self, items: Sequence[MaskItem], call: Call) -> list[tuple[list[float], list[int], MaskItem]]:
        def compute(group: Sequence[MaskItem]) -> list[tuple[list[float], list[int], MaskItem]]:
            rows = pad_rows([item.window.row for item in group], self._window_tokenizer.pad_id)
            batch = move_to_device(rows, self.model)
            with inference_context(self.model_id):
                logits = self.model(**batch).logits
                scores = logits[batch["input_ids"] == self._tokenizer.mask_token_id].float().softmax(-1)
                best = [row.topk(min(item.top_k, len(row))) for row, item in zip(scores, group, strict=True)]
            return [(top.values.tolist(), top.indices.tolist(), item) for top, item in zip(best, group, strict=True)]

        results = run_in_passes([[item] for item in items], lambda item: item.window.length, compute, call)
        return [item for (item,) in results]

    def finish(self, raw: tuple[list[float], list[int], MaskItem]) -> Outputs:
        scores, tokens, item = raw
        before, after = item.text[: item.mask[0]], item.text[item.mask[1] :]
        predictions = []
        for score, token in zip(scores, tokens, strict=True):
            word = self._tokenizer.decode([token]).strip()
            predictions.append({"token": word, "score": round(score, DIGITS), "sequence": before + word + after})
        return {"predictions": predictions, "text": predictions[0]["token"]}
