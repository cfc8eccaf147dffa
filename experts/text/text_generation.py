"""Text generation: continuations, replies in a conversation, and text-to-text generation."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import too_large_error
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import generate_tokens
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.sampling import Sampling
from experts.torch_host.token_limits import MAX_CHARACTERS_PER_TOKEN, max_input_tokens
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition

DEFAULT_NEW_TOKENS = 512
_MIN_NEW_TOKENS = 16
"""Tokens of the model's limit that a prompt must leave for the result."""


@dataclass(frozen=True)
class PromptItem:
    """Prompt of one call."""

    tokens: list[int]
    max_new_tokens: int
    sampling: Sampling

    @property
    def length(self) -> int:
        return len(self.tokens) + self.max_new_tokens


def text_generation(model_id: str, device: str) -> Handler:
    """Loads a language model; one with a chat template receives the text as an instruction."""
    return _load_causal_model(model_id, device)


def conversational(model_id: str, device: str) -> Handler:
    """Loads a language model with a chat template.

    Raises:
        FailedPrecondition: LOAD_FAILED, it has none.
    """
    generator = _load_causal_model(model_id, device)
    if not generator.has_chat_template:
        raise FailedPrecondition(
            f"{model_id} has no chat template: it is not trained for conversations",
            reason="LOAD_FAILED",
            remedy="use a model trained for conversations, often named Instruct or Chat",
        )
    return generator


def text2text_generation(model_id: str, device: str) -> Handler:
    """Loads an encoder-decoder model, such as T5."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return TextGenerator(checkpoint, checkpoint.model(AutoModelForSeq2SeqLM), tokenizer)


def _load_causal_model(model_id: str, device: str) -> "TextGenerator":
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    return TextGenerator(checkpoint, checkpoint.model(AutoModelForCausalLM), tokenizer)


class TextGenerator(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer = tokenizer
        self._max_input_tokens = max_input_tokens(tokenizer, model.config)
        self._is_decoder_only = not model.config.is_encoder_decoder
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        self._lock = Lock()
        """Serializes use of the tokenizer: sanitizing control tokens changes it temporarily."""

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer has a chat template."""
        return bool(self._tokenizer.chat_template)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> PromptItem:
        text = inputs["text"]
        if len(text) > self._max_input_tokens * MAX_CHARACTERS_PER_TOKEN:
            raise self._too_large_error(f"{len(text)} characters")
        with self._lock:
            tokens = self._tokens(text)
        remaining = self._max_input_tokens - len(tokens) if self._is_decoder_only else self._max_input_tokens
        if remaining < _MIN_NEW_TOKENS or len(tokens) > self._max_input_tokens:
            raise self._too_large_error(f"{len(tokens)} tokens")
        new = min(parameters.get("max_new_tokens", DEFAULT_NEW_TOKENS), remaining)
        return PromptItem(tokens, new, Sampling.from_parameters(parameters))

    def cost(self, item: PromptItem) -> float:
        return item.length

    def run(self, items: Sequence[PromptItem], call: Call) -> list[list[int]]:
        def compute(prompts: Sequence[PromptItem]) -> list[list[int]]:
            rows = [{"input_ids": prompt.tokens, "attention_mask": [1] * len(prompt.tokens)} for prompt in prompts]
            batch = pad_rows(rows, self._pad_id, left=self._is_decoder_only)
            return generate_tokens(
                self.model,
                batch,
                call,
                max_new_tokens=prompts[0].max_new_tokens,
                sampling=prompts[0].sampling,
                model_id=self.model_id,
                pad_token_id=self._pad_id,
            )

        results = run_in_passes(
            [[item] for item in items],
            lambda item: item.length,
            compute,
            call,
            kind=lambda item: (item.max_new_tokens, item.sampling),
        )
        return [tokens for (tokens,) in results]

    def finish(self, raw: list[int]) -> Outputs:
        with self._lock:
            text: str = self._tokenizer.decode(raw, skip_special_tokens=True)
        return {"text": _strip_reasoning(text)}

    def _tokens(self, text: str) -> list[int]:
        if not self.has_chat_template:
            tokens: list[int] = self._tokenizer(text).input_ids
            return tokens
        chat: list[int] = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            add_generation_prompt=True,
            sanitize_control_tokens=True,  # <|im_end|> in the caller's text is text, not the end of a turn
            enable_thinking=False,
        ).input_ids
        return chat

    def _too_large_error(self, size: str) -> Exception:
        return too_large_error(self.model_id, "text", size, f"{self._max_input_tokens} tokens")


def _strip_reasoning(text: str) -> str:
    """Removes a model's reasoning before its answer."""
    return text.rpartition("</think>")[2].strip()
