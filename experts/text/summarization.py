"""Summaries by a model; a text too long for it is summarized in parts, and these together again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.text_chunks import fitted, packed, sentences
from experts.text.token_windows import MOST_WINDOWS, too_long
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import generate_tokens
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.token_limits import max_input_tokens
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

_TOKENS_PER_WORD = 1.4
_SHARE = 0.5
"""A summary is at most this part of its text, unless another length is asked for."""
_USUAL = 142
_LEAST = 16
_CHARACTERS_PER_TOKEN = 24
_ROUNDS = 4
_ENDS = (".", "!", "?", "…", "。", "！", "？")


@dataclass(frozen=True)
class Part:
    """Some of a text, as the model reads it."""

    tokens: list[int]
    most: int
    least: int
    """Tokens of its summary."""


@dataclass(frozen=True)
class Text:
    """One caller's text."""

    parts: list[Part]
    max_words: int | None
    min_words: int | None
    """Words of the summary, if asked for."""


def summarization(model_id: str, device: str) -> Handler:
    """An encoder with a decoder, such as BART or T5, that was trained for it."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return Summarizer(checkpoint, checkpoint.model(AutoModelForSeq2SeqLM), tokenizer)


class Summarizer(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._longest = tokenizer, max_input_tokens(tokenizer, model.config)
        advice = (getattr(model.config, "task_specific_params", None) or {}).get("summarization", {})
        self._prefix = str(advice.get("prefix") or "")
        self._most = advice.get("max_length") or model.generation_config.max_length or _USUAL
        self._least = advice.get("min_length") or model.generation_config.min_length or 0

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Text:
        text, most, least = inputs["text"], parameters.get("max_length"), parameters.get("min_length")
        if most is not None and least is not None and least > most:
            raise InvalidRequest(
                f"min_length {least} is above max_length {most}", remedy="ask for a shortest length below the longest"
            )
        if len(text) > MOST_WINDOWS * self._longest * _CHARACTERS_PER_TOKEN:
            raise too_long(self.model_id, "text", f"{len(text)} characters", self._limit())
        parts = self._parts(text, most, least)
        if len(parts) > MOST_WINDOWS:
            raise too_long(self.model_id, "text", f"{sum(len(part.tokens) for part in parts)} tokens", self._limit())
        return Text(parts, most, least)

    def cost(self, item: Text) -> float:
        return sum(len(part.tokens) + part.most for part in item.parts)

    def run(self, items: Sequence[Text], call: Call) -> list[tuple[str, Text]]:
        """In rounds: while a text has several summaries, they are summarized together."""
        said = dict(enumerate(self._round([item.parts for item in items], call)))
        for _ in range(_ROUNDS):
            again = {place: " ".join(texts) for place, texts in said.items() if len(texts) > 1}
            if not again or call.cancelled:
                break
            items_again = [
                self._parts(text, items[place].max_words, items[place].min_words) for place, text in again.items()
            ]
            said |= dict(zip(again, self._round(items_again, call), strict=False))
        return [(" ".join(texts), item) for texts, item in zip(said.values(), items, strict=False)]

    def finish(self, raw: tuple[str, Text]) -> Outputs:
        text, item = raw
        return {"text": shortened(text, item.max_words) if item.max_words else text}

    def _round(self, items: Sequence[Sequence[Part]], call: Call) -> list[list[str]]:
        def compute(parts: Sequence[Part]) -> list[str]:
            rows = [{"input_ids": part.tokens, "attention_mask": [1] * len(part.tokens)} for part in parts]
            tokens = generate_tokens(
                self.model,
                pad_rows(rows, self._tokenizer.pad_token_id),
                call,
                max_new_tokens=parts[0].most,
                model_id=self.model_id,
                report_progress=sum(map(len, items)) == 1,
                min_length=None,
                min_new_tokens=parts[0].least,
            )
            return [self._tokenizer.decode(one, skip_special_tokens=True).strip() for one in tokens]

        def length(part: Part) -> int:
            return len(part.tokens)

        return run_in_passes(items, length, compute, call, kind=lambda part: (part.most, part.least))

    def _parts(self, text: str, most: int | None, least: int | None) -> list[Part]:
        room = self._longest - self._count(self._prefix)
        texts = packed(fitted(sentences(text), self._count, room), self._count, room)
        rows = [self._tokenizer(self._prefix + one).input_ids for one in texts]
        return [Part(row, *self._limits(len(row), most, least, alone=len(rows) == 1)) for row in rows]

    def _limits(self, length: int, most: int | None, least: int | None, *, alone: bool) -> tuple[int, int]:
        """In tokens. Of several parts none is as long as what was asked for, since their summaries are summarized."""
        usual = max(_LEAST, min(self._most, math.ceil(length * _SHARE)))
        asked = math.ceil(most * _TOKENS_PER_WORD) + _LEAST if most else usual
        if least and alone:
            asked = max(asked, math.ceil(least * _TOKENS_PER_WORD) + _LEAST)
        limit = min(asked if alone else usual, self._longest)
        wanted = math.ceil(least * _TOKENS_PER_WORD) if least and alone else min(self._least, usual // 2)
        return limit, min(wanted, limit - 1)

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text).input_ids) if text else 0

    def _limit(self) -> str:
        return f"about {MOST_WINDOWS * self._longest} tokens"


def shortened(text: str, most: int) -> str:
    """No more than so many words: up to the last sentence that fits, else with an ellipsis."""
    words = text.split()
    if len(words) <= most:
        return text
    kept = words[:most]
    ends = [place for place, word in enumerate(kept, 1) if word.endswith(_ENDS)]
    return " ".join(kept[: ends[-1]]) if ends else " ".join(kept) + "…"
