"""An expert for the benchmark: a model that does nothing, one that gains from batches, and eight that take memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experts.host.handler import Batching, Call, Handler, Inputs, Outputs, Parameters, single

TASK = "summarization"
ITEMS = 8
ROWS, SIDE = 256, 1024
START, EACH = 4, 3
"""Products of matrices for any batch, and for each of its items: about 5 ms each, on one core."""

SHELVED_BYTES = 64 * 1024 * 1024
SHELVES = tuple(f"shelf/{number}" for number in range(1, 9))


class Dense:
    """Multiplies matrices: some for the batch, some for each item of it."""

    batching = Batching(items=ITEMS)

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._weights = random.random((SIDE, SIDE), dtype=np.float32)
        self._rows = random.random((ROWS, SIDE), dtype=np.float32)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    def cost(self, item: str) -> float:
        return 1.0

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        for _ in range(START + EACH * len(items)):
            self._rows @ self._weights
        return items

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


class Shelved:
    """Takes memory, and says what it is given."""

    def __init__(self) -> None:
        self._weights = np.ones(SHELVED_BYTES, dtype=np.uint8)

    def __call__(self, inputs: Inputs, parameters: Parameters) -> Outputs:
        return {"text": inputs["text"]}


def nothing(inputs: Inputs, parameters: Parameters) -> dict[str, Any]:
    """What the model that does nothing does."""
    return {"text": inputs["text"]}


def loader(model_id: str, device: str) -> Handler:
    """By the model's id."""
    if model_id == "nothing":
        return single(nothing)
    return Dense() if model_id == "dense" else single(Shelved())


TASKS = {TASK: loader}
PRELOAD = ("nothing", "dense")
