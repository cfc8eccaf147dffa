"""Best throughput of a model without a server, with transformers alone.

python -m tests.bench.expert_models.offline MODALITY CHECKPOINT INPUTS DEVICE COUNT BATCHES tries the batch sizes, then
numbers of threads that preprocess the next batches, prints the fastest settings as JSON, and then the items per second
of one round with them for each line that it reads. A round has COUNT items, sorted by size to save padding, and
includes reading files, preprocessing, the model, and its results as Python values.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from experts.torch_host.devices import select_dtype

THREADS = (0, 1, 2, 4)
"""Numbers of threads that preprocess; 0 preprocesses between batches."""
TOP_K = 5


@dataclass(frozen=True)
class Settings:
    """Settings of an offline run.

    Attributes:
        batch: items in a batch.
        threads: that preprocess batches ahead of the model.
        rate: items per second with these settings.
        single_rate: items per second one at a time.
    """

    batch: int
    threads: int
    rate: float
    single_rate: float = 0.0


@dataclass(frozen=True)
class Steps:
    """Two steps of a batch: from files to tensors, and from tensors to results."""

    preprocess: Callable[[Sequence[Path]], Any]
    predict: Callable[[Any], Sequence[object]]


def classify_texts(folder: Path, device: torch.device) -> Steps:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = _load(AutoModelForSequenceClassification, folder, device)

    def preprocess(files: Sequence[Path]) -> Any:
        return tokenizer([file.read_text() for file in files], padding=True, truncation=True, return_tensors="pt")

    return Steps(preprocess, lambda batch: _top_labels(model, batch))


def classify_images(folder: Path, device: torch.device) -> Steps:
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    processor = AutoImageProcessor.from_pretrained(folder)
    model = _load(AutoModelForImageClassification, folder, device)

    def preprocess(files: Sequence[Path]) -> Any:
        return processor([Image.open(file).convert("RGB") for file in files], return_tensors="pt")

    return Steps(preprocess, lambda batch: _top_labels(model, batch))


def transcribe(folder: Path, device: torch.device) -> Steps:
    import soundfile
    from transformers import AutoModelForCTC, AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    model = _load(AutoModelForCTC, folder, device)
    rate = processor.feature_extractor.sampling_rate

    def preprocess(files: Sequence[Path]) -> Any:
        samples = [soundfile.read(file, dtype="float32")[0] for file in files]
        return processor(samples, sampling_rate=rate, padding=True, return_tensors="pt")

    def predict(batch: Any) -> Sequence[object]:
        tokens = model(**_to_device(batch, model)).logits.argmax(-1)
        texts: Sequence[object] = processor.batch_decode(tokens.cpu())
        return texts

    return Steps(preprocess, predict)


LOADERS: Mapping[str, Callable[[Path, torch.device], Steps]] = {
    "text": classify_texts,
    "vision": classify_images,
    "audio": transcribe,
}


def _load(kind: Any, folder: Path, device: torch.device) -> Any:
    return kind.from_pretrained(folder, dtype=select_dtype(device, "")).to(device).eval()


def _to_device(batch: Mapping[str, Any], model: Any) -> dict[str, Any]:
    on_gpu = model.device.type == "cuda"
    tensors = {name: value.pin_memory() if on_gpu else value for name, value in batch.items()}
    return {
        name: value.to(model.device, model.dtype if value.is_floating_point() else None, non_blocking=True)
        for name, value in tensors.items()
    }


def _top_labels(model: Any, batch: Any) -> list[list[tuple[str, float]]]:
    probabilities = model(**_to_device(batch, model)).logits.float().softmax(-1)
    scores, indices = probabilities.topk(min(TOP_K, probabilities.shape[-1]))
    names = model.config.id2label
    return [
        [(names[index], score) for index, score in zip(*row, strict=True)]
        for row in zip(indices.tolist(), scores.tolist(), strict=True)
    ]


def items_per_second(steps: Steps, files: Sequence[Path], settings: Settings) -> float:
    """Processes the files once."""
    by_size = sorted(files, key=lambda file: file.stat().st_size)
    chunks = [by_size[start : start + settings.batch] for start in range(0, len(by_size), settings.batch)]
    started, done = time.perf_counter(), 0
    with torch.inference_mode():
        for batch in _preprocessed(steps, chunks, settings.threads):
            done += len(steps.predict(batch))
    return done / (time.perf_counter() - started)


def _preprocessed(steps: Steps, chunks: Sequence[Sequence[Path]], threads: int) -> Iterator[Any]:
    """Yields the batches in order; threads preprocess twice their number ahead."""
    if not threads:
        yield from map(steps.preprocess, chunks)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead, left = deque[Future[Any]](), iter(chunks)
        ahead.extend(pool.submit(steps.preprocess, chunk) for chunk in islice(left, 2 * threads))
        while ahead:
            batch = ahead.popleft().result()
            ahead.extend(pool.submit(steps.preprocess, chunk) for chunk in islice(left, 1))
            yield batch


def find_fastest(steps: Steps, files: Sequence[Path], batches: Sequence[int]) -> Settings:
    """Tries the batch sizes without threads, then numbers of threads with the best batch size."""

    def measured(batch: int, threads: int) -> Settings:
        return Settings(batch, threads, items_per_second(steps, files, Settings(batch, threads, 0)))

    items_per_second(steps, files[:2], Settings(1, 0, 0))  # warm-up
    tried = [measured(batch, 0) for batch in batches]
    best = max(tried, key=lambda each: each.rate)
    best = max([best, *(measured(best.batch, threads) for threads in THREADS[1:])], key=lambda each: each.rate)
    return Settings(best.batch, best.threads, best.rate, tried[0].rate)


def main(arguments: Sequence[str]) -> None:
    modality, checkpoint, inputs, device, count, batches = arguments
    steps = LOADERS[modality](Path(checkpoint), torch.device(device))
    files = list(islice(cycle(sorted(Path(inputs).iterdir())), int(count)))
    settings = find_fastest(steps, files, [int(batch) for batch in batches.split(",")])
    print(json.dumps(asdict(settings)), flush=True)
    for _ in sys.stdin:
        print(items_per_second(steps, files, settings), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
