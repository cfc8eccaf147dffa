"""Expert for the benchmark on a GPU: models of production size, in bfloat16.

Of a call only the number of items counts: the inputs of the model are created on the device.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from experts.host.handler import Batching, Call, Handler, Inputs, Outputs, Parameters
from experts.torch_host.devices import TorchDevices, inference_context
from tests.bench.offline_call import OfflineCall

TASK = "summarization"
MODELS = ("bert-large", "vit-large", "whisper-large", "sdxl-unet")


class Large(Handler):
    """One of the models of SHAPES, on a device."""

    def __init__(self, name: str, device: str) -> None:
        import torch

        from tests.bench.large.shapes import DTYPE, SHAPES

        make, self._batch_of, items = SHAPES[name]
        self.batching = Batching(items=items)
        self._name, self._device = name, torch.device(device)
        with self._device:
            self._model = make().to(DTYPE).eval()

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        import torch

        with self._device:
            batch = self._batch_of(len(items))
        with inference_context(self._name):
            self._model(**batch)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return items

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


TASKS = {TASK: Large}
PRELOAD = ()
DEVICES = TorchDevices()


def batch_seconds(model: Large, items: int, batches: int = 20) -> float:
    """Seconds of a batch without a server: the mean of the faster half."""
    taken, call = list[float](), OfflineCall()
    for _ in range(batches):
        started = time.perf_counter()
        model.run([model.prepare({"text": "a few words"}, {})] * items, call)
        taken.append(time.perf_counter() - started)
    return sum(sorted(taken)[: batches // 2]) / (batches // 2)


def main(name: str, device: str) -> None:
    """Prints the items of a full batch, its seconds, and those of a batch of one."""
    model: Any = Large(name, device)
    full = model.batching.items
    print(full, batch_seconds(model, full), batch_seconds(model, 1))


if __name__ == "__main__":
    main(sys.argv[1], "cuda:0")
