"""Writes the tiny models: python -m tests.bench.bulk.models FOLDER."""

import sys
from pathlib import Path

from tests.bench.bulk.arms.work import EMBEDDER, TRANSCRIBER
from tests.bench.expert_models.files import WIDTHS
from tests.tiny.whisper import build_whisper

WORDS = [f"word{number}" for number in range(1000)]
"""Words of the documents; the model has a token for each."""


def save_embedder(folder: Path) -> None:
    """Saves a BERT with random weights, whose vector is that of its first token."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    BertTokenizer(vocab={word: index for index, word in enumerate(vocabulary)}, model_max_length=512).save_pretrained(
        folder
    )
    BertModel(BertConfig(vocab_size=len(vocabulary), **WIDTHS["tiny"])).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}]')


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)  # more threads slow down such small models
    for model_id, save in ((EMBEDDER, save_embedder), (TRANSCRIBER, build_whisper)):
        folder = Path(sys.argv[1]) / model_id
        folder.mkdir(parents=True)
        save(folder)
