"""Fill-mask: the most likely words for a masked word."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Window, WindowTokenizer, too_large_error
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import launch_passes, pad_rows
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import torch

_MASK = re.compile(r"\[MASK\]|<mask>|_{3,}", re.IGNORECASE)
"""Accepted notations of a mask; it is replaced by the model's own mask token."""

Best = tuple["torch.Tensor", "torch.Tensor"]
"""Scores and numbers of the most likely tokens, one row per text."""


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

    def compute(self, items: Sequence[MaskItem], call: Call) -> ReadResults:
        passes = launch_passes([[item] for item in items], lambda item: item.window.length, self._forward, call)
        return lambda: [result for (result,) in passes.read(_read_best)]

    def _forward(self, items: Sequence[MaskItem]) -> Best:
        rows = pad_rows([item.window.row for item in items], self._window_tokenizer.pad_id)
        masks = (rows["input_ids"] == self._tokenizer.mask_token_id).nonzero()  # here, since a GPU would be waited for
        batch = move_to_device({**rows, "masks": masks}, self.model)
        positions = tuple(batch.pop("masks").T)
        with inference_context(self.model_id):
            scores = self.model(**batch).logits[positions].float().softmax(-1)
            best = scores.topk(min(items[0].top_k, scores.shape[-1]))
        return copy_to_host(best.values), copy_to_host(best.indices)

    def finish(self, raw: tuple[list[float], list[float], MaskItem]) -> Outputs:
        scores, tokens, item = raw
        before, after = item.text[: item.mask[0]], item.text[item.mask[1] :]
        predictions = []
        for score, token in zip(scores, tokens, strict=True):
            word = self._tokenizer.decode([int(token)]).strip()
            predictions.append({"token": word, "score": round(score, DIGITS), "sequence": before + word + after})
        return {"predictions": predictions, "text": predictions[0]["token"]}


def _read_best(items: Sequence[MaskItem], best: Best) -> list[tuple[list[float], list[float], MaskItem]]:
    return list(zip(*(part.tolist() for part in best), items, strict=True))
