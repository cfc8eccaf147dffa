"""Expert for the benchmark: a BERT and a ViT small enough for one core, served by the product's own loaders."""

import io

from PIL import Image

from experts.text.classification import text_classification
from experts.vision.classification import image_classification

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
