"""Where models compute, and how much memory there is: the host's own knowledge, and what it asks an engine for."""

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
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


class Memory(Protocol):
    """Bytes of one device."""

    @property
    def used(self) -> int: ...

    @property
    def free(self) -> int: ...


class Devices(Protocol):
    """What the host asks of an engine with devices of its own; called off the loop. A modality's tasks.py names it."""

    def devices(self) -> tuple[str, ...]:
        """Every GPU there is, such as "cuda:0"; "cpu" where there is none."""

    def memory(self, device: str) -> Memory:
        """Of a GPU; the host knows the process's memory itself."""

    def product(self, device: str) -> str:
        """What a GPU's maker calls it, such as "NVIDIA L4"."""

    def use(self, device: str) -> float | None:
        """The share of the last moments in which a device computed, whoever had it do so; None where nobody knows."""

    def release(self) -> None:
        """Gives back what models left behind that nothing refers to any more."""


@runtime_checkable
class Repositories(Protocol):
    """What an engine's Devices know besides where its models are repositories, which have commits."""

    module: str
    """What no model of it can do without."""

    def commit(self, model_id: str) -> str:
        """The one of a model that is on this machine, and stays the one that is loaded; empty if it is not here."""

    def made_for(self) -> str:
        """Where its models are going to compute, whether this machine has that or not: "cuda" or "cpu"."""


class OnlyCpu:
    """The devices of an engine that has none of its own."""

    def devices(self) -> tuple[str, ...]:
        return (CPU,)

    def memory(self, device: str) -> Memory:
        raise ValueError(f"there is no {device}")

    def product(self, device: str) -> str:
        raise ValueError(f"there is no {device}")

    def use(self, device: str) -> float | None:
        if device != CPU:
            raise ValueError(f"there is no {device}")
        return None

    def release(self) -> None:
        gc.collect()


@dataclass(frozen=True)
class Place:
    """Where a model is to compute, and with which numbers."""

    device: str = "auto"
    """"auto", "cpu", "cuda" or "cuda:0"."""
    dtype: str = ""
    """As Loading has it."""


class Places:
    """Where the operator wants models: "model=cuda:0:bf16,other=cpu,*=auto".

    Raises:
        ValueError: it is not written like that.
    """

    def __init__(self, text: str) -> None:
        self._by_model: Mapping[str, Place] = dict(_entry(entry.strip()) for entry in text.split(",") if entry.strip())

    def of(self, model_id: str) -> Place:
        return self._by_model.get(model_id) or self._by_model.get("*") or Place()


def _entry(text: str) -> tuple[str, Place]:
    model, _, where = text.partition("=")
    device, dtype = where.strip(), ""
    head, _, tail = device.rpartition(":")
    if tail in DTYPES or tail in DTYPES.values():
        device, dtype = head, DTYPES.get(tail, tail)
    kind, _, index = device.partition(":")
    if not model or kind not in ("auto", CPU, "cuda") or (index and not (kind == "cuda" and index.isdigit())):
        raise ValueError(f"{text!r} is not MODEL=DEVICE or MODEL=DEVICE:DTYPE, such as *=auto or org/name=cuda:0:bf16")
    return model.strip(), Place(device, dtype)


def resident_bytes(process_id: int | None = None) -> int:
    """What a process takes of the machine's memory, this one by default.

    Where the system does not say, the most this process ever took, and 0 for others.
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
    """What the machine, or the container, has of memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    told = [file.read_text(encoding="ascii").strip() for file in _LIMITS if file.exists()]
    return min([machine, *(int(text) for text in told if text.isdigit())])


def trim() -> None:
    """Has the allocator give freed memory back to the system, where it can be asked to."""
    if sys.platform == "linux" and (malloc_trim := _malloc_trim()):
        malloc_trim(0)


@cache
def _malloc_trim() -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
