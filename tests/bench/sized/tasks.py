"""An expert for the benchmark: a BERT and a ViT, small but of a size that takes a core a while, served as any are."""

import io
import sys
import time
from typing import Any

from PIL import Image

from experts.host.handler import Media
from experts.text.classification import text_classification
from experts.vision.classification import image_classification
from tests.bench.no_server import Nobody

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
    """What a full batch takes, reading and writing included, without a server: the better half of some."""
    handler: Any = TASKS[TASK_OF[model_id]](model_id, "cpu")
    given: dict[str, Any] = {"text": text()}
    if model_id == VIT:
        given = {"image": Media(picture(), "image/png", "gradient.png")}
    taken = []
    for _ in range(batches):
        begun = time.perf_counter()
        items = [handler.prepare(given, {"top_k": 2}) for _ in range(ITEMS)]
        for raw in handler.run(items, Nobody()):
            handler.finish(raw)
        taken.append(time.perf_counter() - begun)
    return sum(sorted(taken)[: batches // 2]) / (batches // 2)


if __name__ == "__main__":
    print(full_batch_seconds(sys.argv[1]))
