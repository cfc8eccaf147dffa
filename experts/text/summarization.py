"""Summarization; a long text is summarized in parts, and then its summaries are summarized together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.text_chunks import join_short, split_long, split_sentences
from experts.text.token_windows import MAX_WINDOWS, too_large_error
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import generate_tokens
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.token_limits import MAX_CHARACTERS_PER_TOKEN, max_input_tokens
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

_TOKENS_PER_WORD = 1.4
_MAX_SHARE = 0.5
"""Default maximum length of a summary, as a share of its text."""
_DEFAULT_TOKENS = 142
_MIN_TOKENS = 16
_MAX_ROUNDS = 4
_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")


@dataclass(frozen=True)
class Part:
    """Tokenized part of a text, with the length of its summary."""

    tokens: list[int]
    max_tokens: int
    min_tokens: int


@dataclass(frozen=True)
class SummaryItem:
    """Text of one call."""

    parts: list[Part]
    max_words: int | None
    min_words: int | None
    """Requested length of the summary; None for the default."""


def summarization(model_id: str, device: str) -> Handler:
    """Loads an encoder-decoder model trained for summarization, such as BART or T5."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return Summarizer(checkpoint, checkpoint.model(AutoModelForSeq2SeqLM), tokenizer)


class Summarizer(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._max_input_tokens = tokenizer, max_input_tokens(tokenizer, model.config)
        recommended = (getattr(model.config, "task_specific_params", None) or {}).get("summarization", {})
        generation = model.generation_config
        self._prefix = str(recommended.get("prefix") or "")
        self._default_max_tokens = recommended.get("max_length") or generation.max_length or _DEFAULT_TOKENS
        self._default_min_tokens = recommended.get("min_length") or generation.min_length or 0

    def prepare(self, inputs: Inputs, parameters: Parameters) -> SummaryItem:
        text, max_words, min_words = inputs["text"], parameters.get("max_length"), parameters.get("min_length")
        if max_words is not None and min_words is not None and min_words > max_words:
            raise InvalidRequest(
                f"min_length {min_words} is above max_length {max_words}", remedy="lower min_length or raise max_length"
            )
        if len(text) > MAX_WINDOWS * self._max_input_tokens * MAX_CHARACTERS_PER_TOKEN:
            raise too_large_error(self.model_id, "text", f"{len(text)} characters", self._limit())
        parts = self._split(text, max_words, min_words)
        if len(parts) > MAX_WINDOWS:
            raise too_large_error(
                self.model_id, "text", f"{sum(len(part.tokens) for part in parts)} tokens", self._limit()
            )
        return SummaryItem(parts, max_words, min_words)

    def cost(self, item: SummaryItem) -> float:
        return sum(len(part.tokens) + part.max_tokens for part in item.parts)

    def run(self, items: Sequence[SummaryItem], call: Call) -> list[tuple[str, SummaryItem]]:
        """Summarizes in rounds: while a text has several summaries, these are summarized together."""
        summaries = dict(enumerate(self._summarize_parts([item.parts for item in items], call)))
        for _ in range(_MAX_ROUNDS):
            unfinished = {index: " ".join(texts) for index, texts in summaries.items() if len(texts) > 1}
            if not unfinished or call.cancelled:
                break
            parts = [
                self._split(text, items[index].max_words, items[index].min_words) for index, text in unfinished.items()
            ]
            summaries |= dict(zip(unfinished, self._summarize_parts(parts, call), strict=False))
        return [(" ".join(texts), item) for texts, item in zip(summaries.values(), items, strict=False)]

    def finish(self, raw: tuple[str, SummaryItem]) -> Outputs:
        text, item = raw
        return {"text": truncate_words(text, item.max_words) if item.max_words else text}

    def _summarize_parts(self, items: Sequence[Sequence[Part]], call: Call) -> list[list[str]]:
        def compute(parts: Sequence[Part]) -> list[str]:
            rows = [{"input_ids": part.tokens, "attention_mask": [1] * len(part.tokens)} for part in parts]
            tokens = generate_tokens(
                self.model,
                pad_rows(rows, self._tokenizer.pad_token_id),
                call,
                max_new_tokens=parts[0].max_tokens,
                model_id=self.model_id,
                report_progress=sum(map(len, items)) == 1,
                min_length=None,
                min_new_tokens=parts[0].min_tokens,
            )
            return [self._tokenizer.decode(row, skip_special_tokens=True).strip() for row in tokens]

        def length(part: Part) -> int:
            return len(part.tokens)

        return run_in_passes(items, length, compute, call, kind=lambda part: (part.max_tokens, part.min_tokens))

    def _split(self, text: str, max_words: int | None, min_words: int | None) -> list[Part]:
        capacity = self._max_input_tokens - self._count(self._prefix)
        texts = join_short(split_long(split_sentences(text), self._count, capacity), self._count, capacity)
        rows = [self._tokenizer(self._prefix + part).input_ids for part in texts]
        return [Part(row, *self._limits(len(row), max_words, min_words, is_whole=len(rows) == 1)) for row in rows]

    def _limits(self, length: int, max_words: int | None, min_words: int | None, *, is_whole: bool) -> tuple[int, int]:
        """Returns the maximum and minimum tokens of a part's summary.

        The requested length applies only to a whole text: summaries of several parts are summarized again.
        """
        default = max(_MIN_TOKENS, min(self._default_max_tokens, math.ceil(length * _MAX_SHARE)))
        requested = math.ceil(max_words * _TOKENS_PER_WORD) + _MIN_TOKENS if max_words else default
        if min_words and is_whole:
            requested = max(requested, math.ceil(min_words * _TOKENS_PER_WORD) + _MIN_TOKENS)
        limit = min(requested if is_whole else default, self._max_input_tokens)
        if min_words and is_whole:
            minimum = math.ceil(min_words * _TOKENS_PER_WORD)
        else:
            minimum = min(self._default_min_tokens, default // 2)
        return limit, min(minimum, limit - 1)

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text).input_ids) if text else 0

    def _limit(self) -> str:
        return f"about {MAX_WINDOWS * self._max_input_tokens} tokens"


def truncate_words(text: str, max_words: int) -> str:
    """Truncates a text after the last sentence that fits, or with an ellipsis if none ends in time."""
    words = text.split()
    if len(words) <= max_words:
        return text
    truncated = words[:max_words]
    ends = [count for count, word in enumerate(truncated, 1) if word.endswith(_SENTENCE_ENDS)]
    return " ".join(truncated[: ends[-1]]) if ends else " ".join(truncated) + "…"
