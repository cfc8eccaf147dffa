"""Where a model computes, with which numbers, and how much room there is."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experts.torch_host.sources import commit_here
from services.common.errors import FailedPrecondition, OutOfMemory

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Memory:
    """Bytes of one device."""

    used: int
    free: int


class TorchDevices:
    """What torch knows of devices, and of its models: what a torch modality's tasks.py names DEVICES."""

    module = "torch"

    def devices(self) -> tuple[str, ...]:
        """Every GPU there is, else the CPU."""
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return tuple(f"cuda:{index}" for index in range(count)) or ("cpu",)

    def memory(self, device: str) -> Memory:
        """What a GPU holds and has left; what the allocator keeps for later counts as free.

        Raises:
            ValueError: it is no GPU; the host knows the process's memory itself.
        """
        import torch

        if not device.startswith("cuda"):
            raise ValueError(f"{device} is no GPU")
        free, total = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(used=total - free - kept, free=free + kept)

    def utilization(self, device: str) -> float | None:
        """What the driver says of a GPU; None of a CPU, and where the driver does not say."""
        if not device.startswith("cuda"):
            return None
        import torch
        from pynvml import NVMLError

        try:
            return torch.cuda.utilization(device) / 100
        except (NVMLError, RuntimeError, ImportError):  # a slice has none, a container may not ask, AMD's has another
            return None

    def product(self, device: str) -> str:
        """What a GPU's maker calls it."""
        import torch

        return torch.cuda.get_device_name(device)

    def commit(self, model_id: str) -> str:
        """The commit of a model that is on this machine; empty if it is not here, or not under one."""
        return commit_here(model_id)

    def target_device(self) -> str:
        """What this build of torch is for."""
        import torch

        return "cuda" if torch.version.cuda else "cpu"

    def release(self) -> None:
        """Gives back what evicted models leave behind; to be called once nothing refers to them."""
        gc.collect()
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_available():
            torch.cuda.empty_cache()


def device_named(name: str) -> "torch.device":
    """The device of that name; "auto" is the first GPU, else the CPU.

    Raises:
        FailedPrecondition: LOAD_FAILED, it is not on this machine.
    """
    import torch

    try:
        device = torch.device(TorchDevices().devices()[0] if name == "auto" else name)
    except RuntimeError:
        device = None
    if device is None or (device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()):
        raise FailedPrecondition(
            f"there is no device {name}",
            reason="LOAD_FAILED",
            remedy=f"choose among {', '.join(TorchDevices().devices())}, cpu",
        )
    return device


def dtype_for(device: "torch.device", wanted: str) -> "torch.dtype":
    """The dtype of weights on a device: the one wanted, else bfloat16 or float16 on a GPU, and float32 on a CPU."""
    import torch

    if wanted:
        named: torch.dtype = getattr(torch, wanted)
        return named
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


@contextmanager
def computing(model_id: str) -> Iterator[None]:
    """For what runs a model: without gradients, and a full GPU is an OutOfMemory that the host understands."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError:
        raise OutOfMemory(
            f"{model_id} does not fit into the GPU's memory beside what is there",
            remedy="send a smaller input, or take a smaller model or a larger GPU",
        ) from None
