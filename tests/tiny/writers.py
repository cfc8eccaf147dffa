"""Tiny models that write."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny.lessons import REPLIES, REWRITES, STORY, SUMMARIES, TEMPLATE, words
from tests.tiny.sizes import LENGTH, SEQ2SEQ, SIZES
from tests.tiny.training import lesson, taught


def rewriter(folder: Path) -> None:
    """T5: knows two ways to rewrite, and its own way to be told languages."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

    torch.manual_seed(0)
    vocabulary = [
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *((f"▁{word}", -1.0) for word in [*words(), "translate", "to"]),
    ]
    tokenizer = T5Tokenizer(
        vocab=[*vocabulary, ("▁english", -1.0), ("▁german", -1.0)], extra_ids=0, model_max_length=LENGTH
    )
    tokenizer.save_pretrained(folder)
    sizes: Mapping[str, Any] = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    tokens: Mapping[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = T5Config(vocab_size=len(tokenizer), dropout_rate=0.0, **sizes, **tokens)
    batch, labels = lesson(tokenizer, REWRITES)
    taught(T5ForConditionalGeneration(config), lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def _byte_level(folder: Path, kind: str, specials: Sequence[str], **options: Any) -> Any:
    """A tokenizer of bytes and their pairs, of a class that transformers has."""
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    engine = ByteLevelBPETokenizer()
    engine.train_from_iterator(
        [" ".join(words())] * 4, vocab_size=700, special_tokens=list(specials), show_progress=False
    )
    state = json.loads(engine.to_str())["model"]
    merges = [tuple(pair) for pair in state["merges"]]
    tokenizer = getattr(transformers, kind)(vocab=state["vocab"], merges=merges, model_max_length=LENGTH, **options)
    tokenizer.save_pretrained(folder)
    return tokenizer


def summarizer(folder: Path) -> None:
    """BART: knows what matters in two texts."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = _byte_level(folder, "BartTokenizer", ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokens: Mapping[str, Any] = {"forced_eos_token_id": None, "forced_bos_token_id": None, "decoder_start_token_id": 2}
    config = BartConfig(vocab_size=len(tokenizer), **SEQ2SEQ, **tokens)
    batch, labels = lesson(tokenizer, SUMMARIES)
    taught(BartForConditionalGeneration(config), lambda model: model(**batch, labels=labels).loss).save_pretrained(
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


def storyteller(folder: Path) -> None:
    """A language model that knows one story, and no conversation."""
    tokenizer = _byte_level(folder, "GPT2Tokenizer", ["<pad>", "<end>"], pad_token="<pad>", eos_token="<end>")
    row = tokenizer(STORY + "<end>", return_tensors="pt")["input_ids"]
    taught(_llama(tokenizer), lambda model: model(input_ids=row, labels=row).loss).save_pretrained(folder)


def talker(folder: Path) -> None:
    """A language model with a chat template, that knows what to reply to two messages."""
    import torch

    turns = ["<|user|>", "<|assistant|>", "<|end|>"]
    tokenizer = _byte_level(
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
        [{"role": "user", "content": said}, {"role": "assistant", "content": reply}] for said, reply in REPLIES.items()
    ]
    rows = [torch.tensor([tokenizer.apply_chat_template(chat).input_ids]) for chat in chats]
    asked = [len(tokenizer.apply_chat_template(chat[:1], add_generation_prompt=True).input_ids) for chat in chats]

    def loss(model: Any) -> Any:
        replies = [
            torch.where(torch.arange(row.shape[1]) < start, -100, row) for row, start in zip(rows, asked, strict=True)
        ]
        return sum(model(input_ids=row, labels=reply).loss for row, reply in zip(rows, replies, strict=True))

    taught(_llama(tokenizer), loss).save_pretrained(folder)
