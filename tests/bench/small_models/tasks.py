"""Expert for the benchmark: a BERT and a ViT small enough for one core, served by the product's own loaders."""

import io
import sys
import time
from typing import Any

from PIL import Image

from experts.host.handler import Media
from experts.text.classification import text_classification
from experts.vision.classification import image_classification
from tests.bench.offline_call import OfflineCall

BERT, VIT = "bench/bert", "bench/vit"
TASK_OF = {BERT: "text-classification", VIT: "image-classification"}
ITEMS = 32
WORDS, SIDE = 120, 224

TASKS = {TASK_OF[BERT]: text_classification, TASK_OF[VIT]: image_classification}


def text() -> str:
    return " ".join(f"word{number % 50}" for number in range(WORDS))


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").resize((SIDE, SIDE)).save(buffer, "PNG")
    return buffer.getvalue()


def full_batch_seconds(model_id: str, batches: int = 4) -> float:
    """Seconds of a full batch with preparation, without a server: the mean of the faster half."""
    handler: Any = TASKS[TASK_OF[model_id]](model_id, "cpu")
    inputs: dict[str, Any] = {"text": text()}
    if model_id == VIT:
        inputs = {"image": Media(picture(), "image/png", "gradient.png")}
    taken = []
    for _ in range(batches):
        started = time.perf_counter()
        items = [handler.prepare(inputs, {"top_k": 2}) for _ in range(ITEMS)]
        for raw in handler.run(items, OfflineCall()):
            handler.finish(raw)
        taken.append(time.perf_counter() - started)
    return sum(sorted(taken)[: batches // 2]) / (batches // 2)


if __name__ == "__main__":
    print(full_batch_seconds(sys.argv[1]))
