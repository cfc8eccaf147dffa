"""Expert for the benchmark: no-op models, two that gain from batching, and eight that occupy memory."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from experts.host.handler import Batching, Call, Handler, Inputs, Outputs, Parameters, single

TASK = "summarization"
ITEMS = 8
ROWS, SIDE = 256, 1024
START, EACH = 4, 3
"""Matrix products per batch, and per item of it: about 5 ms each, on one core."""

MODEL_BYTES = 64 * 1024 * 1024
EVICTABLE_MODELS = tuple(f"memory/{number}" for number in range(1, 9))


class Dense(Handler):
    """Multiplies matrices: START times for a batch, EACH times for each of its items."""

    batching = Batching(items=ITEMS)

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._weights = random.random((SIDE, SIDE), dtype=np.float32)
        self._rows = random.random((ROWS, SIDE), dtype=np.float32)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        for _ in range(START + EACH * len(items)):
            self._rows @ self._weights
        return items

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


LAUNCH_SECONDS = 0.005


class FixedTime(Handler):
    """Takes the same time for a batch of any size, as a small model on a GPU does; returns its input."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        if self._seconds:
            time.sleep(self._seconds)
        return items

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


class MemoryModel:
    """Occupies MODEL_BYTES of memory, and returns its input."""

    def __init__(self) -> None:
        self._weights = np.ones(MODEL_BYTES, dtype=np.uint8)

    def __call__(self, inputs: Inputs, parameters: Parameters) -> Outputs:
        return {"text": inputs["text"]}


def noop(inputs: Inputs, parameters: Parameters) -> dict[str, Any]:
    """Returns its input."""
    return {"text": inputs["text"]}


def loader(model_id: str, device: str) -> Handler:
    """Loads a model by its id: noop, batching-noop, launch, dense or memory/N."""
    if model_id == "noop":
        return single(noop)
    if model_id in ("launch", "batching-noop"):
        return FixedTime(LAUNCH_SECONDS if model_id == "launch" else 0)
    return Dense() if model_id == "dense" else single(MemoryModel())


TASKS = {TASK: loader}
PRELOAD = ("noop", "batching-noop", "launch", "dense")
