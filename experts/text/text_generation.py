"""Text that models write: continuations, replies, and rewritten texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import too_long
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import Sampling, generate_tokens
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.token_limits import max_input_tokens
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition

USUAL_NEW_TOKENS = 512
_LEAST_ROOM = 16
"""Tokens that must be left for what is written."""
_CHARACTERS_PER_TOKEN = 24


@dataclass(frozen=True)
class Prompt:
    """One caller's prompt."""

    tokens: list[int]
    max_new_tokens: int
    sampling: Sampling

    @property
    def length(self) -> int:
        return len(self.tokens) + self.max_new_tokens


def text_generation(model_id: str, device: str) -> Handler:
    """A language model; one that was taught to follow instructions is given the text as one."""
    return _writer(model_id, device)


def conversational(model_id: str, device: str) -> Handler:
    """A language model with a chat template.

    Raises:
        FailedPrecondition: LOAD_FAILED, it has none.
    """
    writer = _writer(model_id, device)
    if not writer.chats:
        raise FailedPrecondition(
            f"{model_id} has no chat template: it was not made for conversations",
            reason="LOAD_FAILED",
            remedy="take one that was, such as one called Instruct or Chat",
        )
    return writer


def text2text_generation(model_id: str, device: str) -> Handler:
    """An encoder with a decoder, such as T5."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return Writer(checkpoint, checkpoint.model(AutoModelForSeq2SeqLM), tokenizer)


def _writer(model_id: str, device: str) -> "Writer":
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return Writer(checkpoint, checkpoint.model(AutoModelForCausalLM), tokenizer)


class Writer(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer = tokenizer
        self._longest = max_input_tokens(tokenizer, model.config)
        self._left = not model.config.is_encoder_decoder
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        self._lock = Lock()
        """Reading what is no control token changes the tokenizer for a moment."""

    @property
    def chats(self) -> bool:
        """Whether it knows how a conversation is written."""
        return bool(self._tokenizer.chat_template)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Prompt:
        text = inputs["text"]
        if len(text) > self._longest * _CHARACTERS_PER_TOKEN:
            raise self._too_long(f"{len(text)} characters")
        with self._lock:
            tokens = self._tokens(text)
        room = self._longest - len(tokens) if self._left else self._longest
        if room < _LEAST_ROOM or len(tokens) > self._longest:
            raise self._too_long(f"{len(tokens)} tokens")
        new = min(parameters.get("max_new_tokens", USUAL_NEW_TOKENS), room)
        return Prompt(tokens, new, Sampling.from_parameters(parameters))

    def cost(self, item: Prompt) -> float:
        return item.length

    def run(self, items: Sequence[Prompt], call: Call) -> list[list[int]]:
        def compute(prompts: Sequence[Prompt]) -> list[list[int]]:
            rows = [{"input_ids": prompt.tokens, "attention_mask": [1] * len(prompt.tokens)} for prompt in prompts]
            batch = pad_rows(rows, self._pad_id, left=self._left)
            return generate_tokens(
                self.model,
                batch,
                call,
                max_new_tokens=prompts[0].max_new_tokens,
                sampling=prompts[0].sampling,
                model_id=self.model_id,
                pad_token_id=self._pad_id,
            )

        alike = [[item] for item in items]
        kinds = run_in_passes(
            alike,
            lambda one: one.length,
            compute,
            call,
            kind=lambda one: (one.max_new_tokens, one.sampling),
        )
        return [tokens for (tokens,) in kinds]

    def finish(self, raw: list[int]) -> Outputs:
        with self._lock:
            text: str = self._tokenizer.decode(raw, skip_special_tokens=True)
        return {"text": _said(text)}

    def _tokens(self, text: str) -> list[int]:
        if not self.chats:
            tokens: list[int] = self._tokenizer(text).input_ids
            return tokens
        chat: list[int] = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            add_generation_prompt=True,
            sanitize_control_tokens=True,  # who writes <|im_end|> writes text, not the end of a turn
            enable_thinking=False,
        ).input_ids
        return chat

    def _too_long(self, has: str) -> Exception:
        return too_long(self.model_id, "text", has, f"{self._longest} tokens")


def _said(text: str) -> str:
    """Without what a model thinks aloud before it answers."""
    return text.rpartition("</think>")[2].strip()
