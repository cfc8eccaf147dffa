"""Tiny models that generate text."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny.model_sizes import MAX_TOKENS, SEQ2SEQ, SIZES
from tests.tiny.text_examples import REPLIES, REWRITES, STORY, SUMMARIES, TEMPLATE, list_words
from tests.tiny.training import encode_pairs, train


def build_t5(folder: Path) -> None:
    """Builds a T5 with two rewriting tasks, and its own format for languages."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

    torch.manual_seed(0)
    vocabulary = [
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *((f"▁{word}", -1.0) for word in [*list_words(), "translate", "to"]),
    ]
    tokenizer = T5Tokenizer(
        vocab=[*vocabulary, ("▁english", -1.0), ("▁german", -1.0)], extra_ids=0, model_max_length=MAX_TOKENS
    )
    tokenizer.save_pretrained(folder)
    sizes: Mapping[str, Any] = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    tokens: Mapping[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = T5Config(vocab_size=len(tokenizer), dropout_rate=0.0, **sizes, **tokens)
    batch, labels = encode_pairs(tokenizer, REWRITES)
    train(T5ForConditionalGeneration(config), lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def _save_byte_level_tokenizer(folder: Path, tokenizer_class: str, specials: Sequence[str], **options: Any) -> Any:
    """Saves a byte-level BPE tokenizer of a class of transformers."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    engine = ByteLevelBPETokenizer()
    engine.train_from_iterator(
        [" ".join(list_words())] * 4, vocab_size=700, special_tokens=list(specials), show_progress=False
    )
    state = json.loads(engine.to_str())["model"]
    merges = [tuple(pair) for pair in state["merges"]]
    tokenizer = getattr(transformers, tokenizer_class)(
        vocab=state["vocab"], merges=merges, model_max_length=MAX_TOKENS, **options
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def build_bart(folder: Path) -> None:
    """Builds a BART that summarizes two texts."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = _save_byte_level_tokenizer(folder, "BartTokenizer", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokens: Mapping[str, Any] = {"forced_eos_token_id": None, "forced_bos_token_id": None, "decoder_start_token_id": 2}
    config = BartConfig(vocab_size=len(tokenizer), **SEQ2SEQ, **tokens)
    batch, labels = encode_pairs(tokenizer, SUMMARIES)
    train(BartForConditionalGeneration(config), lambda model: model(**batch, labels=labels).loss).save_pretrained(
        folder
    )


def _llama(tokenizer: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        **SIZES,
        num_key_value_heads=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def build_causal_lm(folder: Path) -> None:
    """Builds a language model that continues one story, without a chat template."""
    tokenizer = _save_byte_level_tokenizer(
        folder, "GPT2Tokenizer", ["<pad>", "<end>"], pad_token="<pad>", eos_token="<end>"
    )
    row = tokenizer(STORY + "<end>", return_tensors="pt")["input_ids"]
    train(_llama(tokenizer), lambda model: model(input_ids=row, labels=row).loss).save_pretrained(folder)


def build_chat_model(folder: Path) -> None:
    """Builds a language model with a chat template that replies to two messages."""
    import torch

    turns = ["<|user|>", "<|assistant|>", "<|end|>"]
    tokenizer = _save_byte_level_tokenizer(
        folder,
        "GPT2Tokenizer",
        ["<pad>", *turns],
        pad_token="<pad>",
        eos_token="<|end|>",
        extra_special_tokens=turns[:2],
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    chats = [
        [{"role": "user", "content": message}, {"role": "assistant", "content": reply}]
        for message, reply in REPLIES.items()
    ]
    rows = [torch.tensor([tokenizer.apply_chat_template(chat).input_ids]) for chat in chats]
    prompt_lengths = [
        len(tokenizer.apply_chat_template(chat[:1], add_generation_prompt=True).input_ids) for chat in chats
    ]

    def loss(model: Any) -> Any:
        replies = [
            torch.where(torch.arange(row.shape[1]) < start, -100, row)
            for row, start in zip(rows, prompt_lengths, strict=True)
        ]
        return sum(model(input_ids=row, labels=reply).loss for row, reply in zip(rows, replies, strict=True))

    train(_llama(tokenizer), loss).save_pretrained(folder)
