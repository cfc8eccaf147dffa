"""A pipeline of transformers over a generator of inputs, with its own batches: one process, a thread for each core."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import pipeline

from tests.bench.bulk.arms.files import write_results
from tests.bench.bulk.arms.work import (
    DOCUMENTS,
    EMBEDDER,
    RATE,
    load_transcriber,
    model_folder,
    read_samples,
    read_text,
)

BATCH = 32


def embed(files: list[Path]) -> Iterator[str]:
    run: Any = pipeline("feature-extraction", model=str(model_folder(EMBEDDER)), device="cpu")
    texts = (read_text(file.read_bytes()) for file in files)
    for states in run(texts, batch_size=BATCH, truncation=True, return_tensors=True):
        yield str(torch.nn.functional.normalize(states[:, 0])[0].tolist())


def transcribe(files: list[Path]) -> Iterator[str]:
    samples: Iterator[Any] = ({"raw": read_samples(file.read_bytes()), "sampling_rate": RATE} for file in files)
    for found in load_transcriber()(samples, batch_size=BATCH):
        yield found["text"]


if __name__ == "__main__":
    workload, folder, out = sys.argv[1:]
    files = sorted(Path(folder).iterdir())
    texts = (embed if workload == DOCUMENTS else transcribe)(files)
    write_results(((file, {"text": text, "error": None}) for file, text in zip(files, texts, strict=True)), out)
