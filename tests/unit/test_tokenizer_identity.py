"""Tokenizers that loaders use divide texts as the repository's tokenizer.json does."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from experts.torch_host.checkpoint import Checkpoint
from tests.tiny import TinyModels

pytestmark = pytest.mark.slow

CORPUS = (
    "The soup of Berlin is good, isn't it? 3.14 e-mails\n\tand  two  spaces.",
    "Größe, naïve café, ¿qué tal?",
    "Привет, мир! Καλημέρα. مرحبا שלום",
    "你好，世界。 こんにちは 안녕하세요 नमस्ते สวัสดี",
    "🦙👩‍👩‍👧 ∑∞ \u200b\u00a0 </s> <unk> [MASK]",
)
"""Scripts, signs and spaces other than those that the loader compares."""
MODELS = [
    ("text", "tiny/sentiment"),
    ("text", "tiny/bart"),
    ("text", "tiny/t5"),
    ("text", "tiny/chat"),
    ("vision", "tiny/smolvlm"),
    ("video", "tiny/wan"),
    ("diffusion", "tiny/sd"),
]
"""With tokenizers of different classes; pipelines have them in a folder."""


def load(folder: Path) -> Any:
    checkpoint = Checkpoint(folder.name, folder, "", torch.device("cpu"), torch.float32)
    return checkpoint.processor(AutoTokenizer)


def stated_ids(folder: Path, text: str) -> list[int]:
    stated = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stated.no_truncation()
    stated.no_padding()
    return list(stated.encode(text, add_special_tokens=False).ids)


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture
def with_byte_fallback(tmp_path: Path) -> Path:
    """A repository whose file divides rare characters into bytes, and whose class would not."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    pieces += [("▁", -3.0), *((letter, -2.0) for letter in "abcdefghijklmnopqrstuvwxyz")]
    backend = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "T5Tokenizer", "unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "extra_ids": 0}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    return tmp_path


def test_class_that_builds_another_tokenizer_gives_way_to_the_file(with_byte_fallback: Path) -> None:
    built, loaded = AutoTokenizer.from_pretrained(with_byte_fallback), load(with_byte_fallback)
    assert ids(built, "a ꙮ") != stated_ids(with_byte_fallback, "a ꙮ")
    assert [ids(loaded, text) for text in CORPUS] == [stated_ids(with_byte_fallback, text) for text in CORPUS]


@pytest.mark.parametrize(("modality", "model"), MODELS)
def test_tokenizer_of_a_loader_equals_its_file(modality: str, model: str, tiny_models: TinyModels) -> None:
    (folder,) = (file.parent for file in tiny_models.build(modality, model).rglob("tokenizer.json"))
    tokenizer = load(folder)
    assert [ids(tokenizer, text) for text in CORPUS] == [stated_ids(folder, text) for text in CORPUS]
