"""Writes the small models, with random weights: python -m tests.bench.small_models.build FOLDER."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

from tests.bench.small_models.tasks import BERT, SIDE, VIT

WIDTH: Mapping[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


def bert(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(50))]
    BertTokenizer(vocab={word: at for at, word in enumerate(words)}, model_max_length=512).save_pretrained(folder)
    BertForSequenceClassification(BertConfig(vocab_size=len(words), **WIDTH)).save_pretrained(folder)


def vit(folder: Path) -> None:
    ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    ViTForImageClassification(ViTConfig(image_size=SIDE, patch_size=16, **WIDTH)).save_pretrained(folder)


if __name__ == "__main__":
    torch.manual_seed(0)
    bert(Path(sys.argv[1]) / BERT)
    vit(Path(sys.argv[1]) / VIT)
