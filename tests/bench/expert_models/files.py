"""Writes checkpoints with random weights, and input files: python -m tests.bench.expert_models.files FOLDER SIZE."""

import io
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experts.host.media import wav
from tests.bench.expert_models.workloads import AUDIO, TEXT, VISION, WORKLOADS, Size, Workload

WIDTHS: Mapping[Size, Mapping[str, Any]] = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
VOCABULARY, IMAGE_LABELS = 30_522, 1_000
"""Tokens of BERT, and classes of ImageNet."""
LETTERS = (*["<pad>", "<s>", "</s>", "<unk>", "|"], *"ETAONIHSRDLUMWCFGYPBVK'XJQZ")
"""Vocabulary of wav2vec2-base-960h."""

COUNT = 32
"""Input files per workload; their sizes come in random order."""
WORDS = (8, 64)
SECONDS, RATE = (2.0, 4.0), 16_000
PHOTOGRAPH, JPEG_QUALITY = (1024, 768), 75


def save_bert(folder: Path, size: Size) -> None:
    """Saves a BERT for sequence classification, whose vocabulary has one token per word."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [_word(number) for number in range(VOCABULARY - len(words))]
    vocabulary = {word: index for index, word in enumerate(words)}
    BertTokenizer(vocab=vocabulary, model_max_length=512).save_pretrained(folder)
    BertForSequenceClassification(BertConfig(vocab_size=VOCABULARY, **WIDTHS[size])).save_pretrained(folder)


def save_vit(folder: Path, size: Size) -> None:
    """Saves a ViT for image classification."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    ViTImageProcessor(size={"height": 224, "width": 224}).save_pretrained(folder)
    options = {**WIDTHS[size], "num_labels": IMAGE_LABELS}
    ViTForImageClassification(ViTConfig(**options)).save_pretrained(folder)


def save_wav2vec2(folder: Path, size: Size) -> None:
    """Saves a wav2vec 2.0 for speech recognition by letters."""
    from transformers import (
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2ForCTC,
        Wav2Vec2Processor,
    )

    (folder / "vocab.json").write_text(json.dumps({letter: index for index, letter in enumerate(LETTERS)}))
    features = Wav2Vec2FeatureExtractor(sampling_rate=RATE, return_attention_mask=False)
    Wav2Vec2Processor(features, Wav2Vec2CTCTokenizer(folder / "vocab.json")).save_pretrained(folder)
    options = {**WIDTHS[size], **({"conv_dim": (32,) * 7} if size == "tiny" else {})}
    config = Wav2Vec2Config(vocab_size=len(LETTERS), pad_token_id=0, **options)
    Wav2Vec2ForCTC(config).save_pretrained(folder)


def texts() -> Iterator[bytes]:
    """Yields texts of different lengths."""
    draw = random.Random(1)
    for number in _spread(*WORDS):
        yield " ".join(_word(draw.randrange(VOCABULARY // 2)) for _ in range(round(number))).encode()


def photographs() -> Iterator[bytes]:
    """Yields JPEG files, each of about 200 KB and with as much detail as a phone's photograph of that size."""
    for angle in range(COUNT):
        coarse = Image.effect_noise((256, 192), 64).resize(PHOTOGRAPH, Image.Resampling.BICUBIC)
        picture = Image.merge("RGB", [coarse, coarse.rotate(angle), Image.effect_noise(PHOTOGRAPH, 16)])
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=JPEG_QUALITY)
        yield buffer.getvalue()


def recordings() -> Iterator[bytes]:
    """Yields WAV files of different lengths."""
    rng = np.random.default_rng(1)
    for seconds in _spread(*SECONDS):
        samples = rng.normal(0, 0.1, round(seconds * RATE)).astype(np.float32)
        yield wav(samples, RATE, "recording.wav").content


def _spread(low: float, high: float) -> list[float]:
    """COUNT evenly spaced values in random order, always the same."""
    values = [low + (high - low) * index / (COUNT - 1) for index in range(COUNT)]
    random.Random(2).shuffle(values)
    return values


def _word(number: int) -> str:
    """A word of letters only, different for each number."""
    letters = ""
    while number or not letters:
        number, letter = divmod(number, 20)
        letters += "bcdfghjklmnpqrstvwxz"[letter] + "aeiou"[letter % 5]
    return letters


SAVERS: Mapping[str, Callable[[Path, Size], None]] = {
    TEXT.modality: save_bert,
    VISION.modality: save_vit,
    AUDIO.modality: save_wav2vec2,
}
INPUTS: Mapping[str, Callable[[], Iterator[bytes]]] = {
    TEXT.modality: texts,
    VISION.modality: photographs,
    AUDIO.modality: recordings,
}


def input_folder(folder: Path, workload: Workload) -> Path:
    return folder / "inputs" / workload.modality


def write(folder: Path, size: Size) -> None:
    """Writes the checkpoint of each workload to <folder>/<model id>, and its inputs to <folder>/inputs/<modality>."""
    import torch

    for workload in WORKLOADS:
        torch.manual_seed(0)
        checkpoint, inputs = folder / workload.model, input_folder(folder, workload)
        checkpoint.mkdir(parents=True)
        SAVERS[workload.modality](checkpoint, size)
        inputs.mkdir(parents=True)
        for number, content in enumerate(INPUTS[workload.modality]()):
            (inputs / f"{number:02}{_suffix(workload)}").write_bytes(content)


def _suffix(workload: Workload) -> str:
    return {"text/plain": ".txt", "image/jpeg": ".jpg", "audio/wav": ".wav"}[workload.media_type]


if __name__ == "__main__":
    size: Any = sys.argv[2]
    write(Path(sys.argv[1]), size)
