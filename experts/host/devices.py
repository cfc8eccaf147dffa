"""Devices that models compute on and their memory, and the interface to an engine's devices."""

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Protocol, runtime_checkable

CPU = "cpu"

DTYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    **{d: d for d in ("float32", "float16", "bfloat16")},
}

_PROC = Path("/proc")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")

BATCH_ITEMS, MAX_WAITING = 32, 64
"""Default maximum of calls in a batch, and of calls of a model, at a batch scale of 1."""
_REFERENCE_BYTES, _REFERENCE_CORES = 16 * 2**30, 4
"""Memory and cores of a device with a batch scale of 1: of the smallest GPUs in servers, and of a laptop's CPU."""
_MIN_THREADS, _MAX_THREADS = 2, 16


class Memory(Protocol):
    """Bytes of one device."""

    @property
    def used(self) -> int: ...

    @property
    def free(self) -> int: ...


class Devices(Protocol):
    """Devices of an engine, named in a modality's tasks.py; called on a thread."""

    def devices(self) -> tuple[str, ...]:
        """Returns all GPUs, such as "cuda:0", or "cpu" if there are none."""

    def memory(self, device: str) -> Memory:
        """Returns the memory of a GPU; the host measures the process's memory itself."""

    def product(self, device: str) -> str:
        """Returns the product name of a GPU, such as "NVIDIA L4"."""

    def utilization(self, device: str) -> float | None:
        """Returns the recent utilization of a device by all processes, 0 to 1; None if unknown."""

    def release(self) -> None:
        """Returns memory of unloaded models to the system."""


@runtime_checkable
class Repositories(Protocol):
    """Additional interface of Devices whose models are repositories with commits."""

    module: str
    """Python module that all of its models require."""

    def commit(self, model_id: str) -> str:
        """Returns the commit of a model on this machine, which is the one that will be loaded; empty if absent."""

    def target_device(self) -> str:
        """Returns the device that files are fetched for, "cuda" or "cpu", even if this machine has no GPU."""

    def largest_memory(self) -> int:
        """Returns the bytes of the largest GPU's memory, without loading the engine; 0 without a GPU."""

    def cache(self) -> Path:
        """Returns the folder that files are fetched into."""

    def is_offline(self) -> bool:
        """Whether nothing is downloaded: models are present or absent."""


class CpuOnly:
    """Devices of an engine that only uses the CPU."""

    def devices(self) -> tuple[str, ...]:
        return (CPU,)

    def memory(self, device: str) -> Memory:
        raise ValueError(f"there is no {device}")

    def product(self, device: str) -> str:
        raise ValueError(f"there is no {device}")

    def utilization(self, device: str) -> float | None:
        if device != CPU:
            raise ValueError(f"there is no {device}")
        return None

    def release(self) -> None:
        gc.collect()


@dataclass(frozen=True)
class Placement:
    """Device and number type of a model."""

    device: str = "auto"
    """"auto", "cpu", "cuda" or "cuda:0"."""
    dtype: str = ""
    """As in ComputeOptions."""


class Placements:
    """Placements of models, as configured: "model=cuda:0:bf16,other=cpu,*=auto".

    Raises:
        ValueError: the text has another format.
    """

    def __init__(self, text: str) -> None:
        self._by_model: Mapping[str, Placement] = dict(
            _entry(entry.strip()) for entry in text.split(",") if entry.strip()
        )

    def of(self, model_id: str) -> Placement:
        return self._by_model.get(model_id) or self._by_model.get("*") or Placement()


def _entry(text: str) -> tuple[str, Placement]:
    model, _, where = text.partition("=")
    device, dtype = where.strip(), ""
    head, _, tail = device.rpartition(":")
    if tail in DTYPES or tail in DTYPES.values():
        device, dtype = head, DTYPES.get(tail, tail)
    kind, _, index = device.partition(":")
    if not model or kind not in ("auto", CPU, "cuda") or (index and not (kind == "cuda" and index.isdigit())):
        raise ValueError(f"{text!r} is not MODEL=DEVICE or MODEL=DEVICE:DTYPE, such as *=auto or org/name=cuda:0:bf16")
    return model.strip(), Placement(device, dtype)


def resident_bytes(process_id: int | None = None) -> int:
    """Returns the resident memory of a process, by default this one.

    On systems without /proc: the peak of this process, and 0 for other processes.
    """
    statm = _PROC / str(process_id or "self") / "statm"
    with suppress(OSError):
        return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if process_id is not None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def limit_bytes() -> int:
    """Returns the memory of the machine, or the limit of the container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [file.read_text(encoding="ascii").strip() for file in _LIMITS if file.exists()]
    return min([machine, *(int(text) for text in limits if text.isdigit())])


@cache
def usable_cores() -> int:
    """Returns the number of cores that this process may use: of the machine, or the limit of the container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # there is no limit, or the system has no such file
        quota, period = _CPU_QUOTA.read_text(encoding="ascii").split()
        cores = min(cores, ceil(int(quota) / int(period)))
    return max(1, cores)


def batch_scale(device: str, total_bytes: int) -> float:
    """Returns the factor of a device's batch limits, at least 1.

    Larger batches use a GPU better until all of its cores compute, and larger GPUs have more of both memory and cores:
    the factor is memory / 16 GiB. On a CPU it is the smaller one of cores / 4 and memory / 16 GiB: beyond a few items
    for each core, a larger batch only takes longer.

    Args:
        device: such as "cuda:0".
        total_bytes: its memory.
    """
    scale = total_bytes / _REFERENCE_BYTES
    return max(1.0, min(scale, usable_cores() / _REFERENCE_CORES) if device == CPU else scale)


def default_threads() -> int:
    """Returns the number of threads that read inputs and write outputs: half of the cores, from 2 to 16.

    The other half computes; and more threads mostly wait for Python's interpreter lock.
    """
    return min(max(_MIN_THREADS, usable_cores() // 2), _MAX_THREADS)


def trim() -> None:
    """Returns freed memory from the allocator to the system, if the C library supports it."""
    if sys.platform == "linux" and (malloc_trim := _malloc_trim()):
        malloc_trim(0)


@cache
def _malloc_trim() -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
