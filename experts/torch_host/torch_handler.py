"""Base class of handlers with a torch model, and batches that a GPU computes while the host does other work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host import load_context
from experts.host.handler import Batching, Call, Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import TorchDevices
from experts.torch_host.padding import MAX_PASS_TOKENS

if TYPE_CHECKING:
    import torch

ReadResults = Callable[[], Sequence[Any]]
"""Reads the results of a batch, one per item, from tensors in the host's memory."""


@dataclass(frozen=True)
class DeviceBatch:
    """A batch on its device: a handler.LaunchedBatch."""

    read: ReadResults
    finished: "torch.cuda.Event | None"
    """The event after the batch on the model's stream; None on a CPU, which has finished already."""

    def wait(self) -> None:
        if self.finished:
            self.finished.synchronize()

    def fetch(self) -> Sequence[Any]:
        self.wait()
        return self.read()


class TorchHandler(Handler):
    """Base class of the torch modalities' handlers: one model in memory.

    A handler defines `run`, or else `compute` if no step of it needs values from the device before the last one.
    """

    batching = Batching(padded=True)
    """Items are padded by default; handlers without batching set UNBATCHED."""

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        self.model_id, self.revision = checkpoint.model_id, checkpoint.commit
        self.model = model
        self.max_pass_tokens = int(MAX_PASS_TOKENS * load_context.current().batch_scale)
        """Maximum tokens in one forward pass of an encoder, including padding."""
        self._is_on_gpu = checkpoint.device.type == "cuda"
        self.asynchronous = self._is_on_gpu and type(self).run is TorchHandler.run
        if self._is_on_gpu:
            _use_own_stream(checkpoint.device)

    def run(self, items: Sequence[Any], call: Call) -> Sequence[Any]:
        return self.launch(items, call).fetch()

    def launch(self, items: Sequence[Any], call: Call) -> DeviceBatch:
        read = self.compute(items, call)
        return DeviceBatch(read, _record_event() if self._is_on_gpu else None)

    def compute(self, items: Sequence[Any], call: Call) -> ReadResults:
        """Queues a batch on the device, with the copies of its outputs to the host (`copy_to_host`).

        Returns:
            A function that reads the results; it is called once the device has finished.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Releases the weights and the GPU's memory."""
        self.model = None
        TorchDevices().release()


def copy_to_host(output: "torch.Tensor") -> "torch.Tensor":
    """Returns a float32 copy of a model's output on the CPU.

    The copy from a GPU goes to page-locked memory, does not wait, and must be read only after `DeviceBatch.wait`.
    """
    import torch

    return output.detach().to(torch.float32).to("cpu", non_blocking=True)


def _use_own_stream(device: "torch.device") -> None:
    """Lets the current thread, which is that of the model, queue its work on a stream of its own.

    Models on the default stream would wait for each other.
    """
    import torch

    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))  # on which the weights were copied
    torch.cuda.set_stream(stream)


def _record_event() -> "torch.cuda.Event":
    """Returns an event after all work that the current thread has queued on its stream."""
    import torch

    event = torch.cuda.Event(blocking=True)  # waiting for it does not occupy a core
    event.record()
    return event
