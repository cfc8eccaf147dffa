"""Devices of torch: their memory and utilization, dtypes for them, and the context in which models run."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experts.torch_host.sources import local_commit
from services.common.errors import FailedPrecondition, OutOfMemory

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Memory:
    """Bytes of one device."""

    used: int
    free: int


class TorchDevices:
    """Devices and repositories of torch models: DEVICES in the tasks.py of the torch modalities."""

    module = "torch"

    def devices(self) -> tuple[str, ...]:
        """Returns all GPUs, or the CPU if there are none."""
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return tuple(f"cuda:{index}" for index in range(count)) or ("cpu",)

    def memory(self, device: str) -> Memory:
        """Returns the used and free memory of a GPU; memory cached by the allocator counts as free.

        Raises:
            ValueError: it is not a GPU.
        """
        import torch

        if not device.startswith("cuda"):
            raise ValueError(f"{device} is not a GPU")
        free, total = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Memory(used=total - free - cached, free=free + cached)

    def utilization(self, device: str) -> float | None:
        """Returns the utilization of a GPU as reported by the driver; None for a CPU or if unsupported."""
        if not device.startswith("cuda"):
            return None
        import torch
        from pynvml import NVMLError

        try:
            return torch.cuda.utilization(device) / 100
        except (NVMLError, RuntimeError, ImportError):  # not supported for MIG slices, in some containers and by AMD
            return None

    def product(self, device: str) -> str:
        """Returns the product name of a GPU."""
        import torch

        return torch.cuda.get_device_name(device)

    def commit(self, model_id: str) -> str:
        """Returns the commit of a model on this machine; empty if it is absent or has none."""
        return local_commit(model_id)

    def target_device(self) -> str:
        """Returns the device type that this build of torch supports."""
        import torch

        return "cuda" if torch.version.cuda else "cpu"

    def largest_memory(self) -> int:
        """Returns the bytes of the largest GPU's memory, as its driver reports; 0 without a GPU of NVIDIA."""
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return 0
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            return max((int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) for handle in handles), default=0)
        finally:
            pynvml.nvmlShutdown()

    def cache(self) -> Path:
        """Returns the folder of Hugging Face's cache, which files are fetched into."""
        from huggingface_hub.constants import HF_HOME

        return Path(HF_HOME)

    def is_offline(self) -> bool:
        """Whether HF_HUB_OFFLINE is set."""
        from huggingface_hub.constants import is_offline_mode

        return is_offline_mode()

    def release(self) -> None:
        """Frees the memory of evicted models, once nothing refers to them."""
        gc.collect()
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_available():
            torch.cuda.empty_cache()


def find_device(name: str) -> "torch.device":
    """Returns the device with the given name; "auto" is the first GPU, or the CPU.

    Raises:
        FailedPrecondition: LOAD_FAILED, it does not exist.
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


def select_dtype(device: "torch.device", name: str) -> "torch.dtype":
    """Returns the named dtype; by default bfloat16 or float16 on a GPU, and float32 on a CPU."""
    import torch

    if name:
        named: torch.dtype = getattr(torch, name)
        return named
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


@contextmanager
def inference_context(model_id: str) -> Iterator[None]:
    """Context for running a model: disables gradients, and raises OutOfMemory if the GPU's memory is full."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError:
        raise OutOfMemory(
            f"{model_id} ran out of GPU memory",
            remedy="send a smaller input, or use a smaller model or a larger GPU",
        ) from None
