"""The word behind a mask."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Reader, Window, too_long
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

_MASK = re.compile(r"\[MASK\]|<mask>|_{3,}", re.IGNORECASE)
"""However a model spells its mask, people write it in one of these ways."""


@dataclass(frozen=True)
class Sentence:
    """One caller's sentence."""

    text: str
    mask: tuple[int, int]
    """Where it stands in the text."""
    window: Window
    top_k: int


def fill_mask(model_id: str, device: str) -> Handler:
    """Any model that was trained to guess hidden words."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return Guesser(checkpoint, checkpoint.model(AutoModelForMaskedLM), tokenizer)


class Guesser(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._reader = tokenizer, Reader(tokenizer, model, checkpoint.model_id)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Sentence:
        text = inputs["text"]
        masks = list(_MASK.finditer(text))
        if len(masks) != 1:
            raise InvalidRequest(
                f"the text has {len(masks)} masks, it needs one",
                port="text",
                remedy="write [MASK] where the word is missing, once",
            )
        start, end = masks[0].span()
        windows = self._reader.windows(text[:start] + self._tokenizer.mask_token + text[end:])
        if len(windows) > 1:
            raise too_long(self.model_id, "text", f"more than {self._reader.longest} tokens", "no more")
        return Sentence(text, (start, end), windows[0], parameters["top_k"])

    def cost(self, item: Sentence) -> float:
        return item.window.length

    def run(self, items: Sequence[Sentence], call: Call) -> list[tuple[list[float], list[int], Sentence]]:
        def compute(sentences: Sequence[Sentence]) -> list[tuple[list[float], list[int], Sentence]]:
            batch = move_to_device(pad_rows([one.window.row for one in sentences], self._reader.pad_id), self.model)
            with inference_context(self.model_id):
                logits = self.model(**batch).logits
                scores = logits[batch["input_ids"] == self._tokenizer.mask_token_id].float().softmax(-1)
                best = [row.topk(min(one.top_k, len(row))) for row, one in zip(scores, sentences, strict=True)]
            return [(top.values.tolist(), top.indices.tolist(), one) for top, one in zip(best, sentences, strict=True)]

        found = run_in_passes([[item] for item in items], lambda one: one.window.length, compute, call)
        return [one for (one,) in found]

    def finish(self, raw: tuple[list[float], list[int], Sentence]) -> Outputs:
        scores, tokens, item = raw
        before, after = item.text[: item.mask[0]], item.text[item.mask[1] :]
        predictions = []
        for score, token in zip(scores, tokens, strict=True):
            word = self._tokenizer.decode([token]).strip()
            predictions.append({"token": word, "score": round(score, DIGITS), "sequence": before + word + after})
        return {"predictions": predictions, "text": predictions[0]["token"]}
