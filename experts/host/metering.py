"""Usage metering: seconds of CPUs and devices, divided among the calls that run at the same time.

The calls together are never charged more than the process used, nor more GPU seconds than elapsed. Background work of
the process during a call is charged to the active calls, too.
"""

import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from experts.host.devices import CPU

REMOTE_POOL = "remote"
"""Default pool of models that run in other services."""

Clock = Callable[[], float]


class Meter:
    """Divides the seconds of a clock equally among concurrent users.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._users = 0
        self._last = self._seconds_per_user = 0.0

    def begin(self) -> float:
        """Starts one use; returns the argument for `end`."""
        with self._lock:
            self._divide()
            self._users += 1
            return self._seconds_per_user

    def end(self, start: float) -> float:
        """Ends one use; returns its share of the seconds."""
        with self._lock:
            self._divide()
            self._users -= 1
            return self._seconds_per_user - start

    def _divide(self) -> None:
        now = self._clock()
        if self._users:
            self._seconds_per_user += max(0.0, now - self._last) / self._users
        self._last = max(self._last, now)  # the clock falls briefly while the usage of an ended process is transferred


class MeteredCall(Protocol):
    """A call, or a batch of calls, that is charged for usage."""

    def add_usage(self, pool: str, seconds: float) -> None: ...


@dataclass(frozen=True)
class Pool:
    """Machines with one price, and the meter of their seconds in this process."""

    name: str
    meter: Meter = field(default_factory=Meter)
    _thread: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def charge(self, call: MeteredCall) -> AbstractContextManager[None]:
        """Charges the seconds of the block to the call; a nested block on the same thread is not charged again."""
        return _NOT_AGAIN if hasattr(self._thread, "use") else _Use(self, call)


class _Use:
    """The metered block of one thread."""

    __slots__ = ("_call", "_pool", "_start")

    def __init__(self, pool: Pool, call: MeteredCall) -> None:
        self._pool, self._call = pool, call

    def __enter__(self) -> None:
        self._pool._thread.use = self  # noqa: SLF001  # a part of it
        self._start = self._pool.meter.begin()

    def __exit__(self, *_: object) -> None:
        del self._pool._thread.use  # noqa: SLF001  # likewise
        self._call.add_usage(self._pool.name, self._pool.meter.end(self._start))


_NOT_AGAIN = nullcontext()


@cache
def cpus() -> Pool:
    """Returns the pool of the CPUs, metered by the processor time of this process and its workers."""
    return Pool(CPU, Meter(_cpu_seconds))


class Pools:
    """Usage pools of an expert's devices.

    Args:
        name: pool of its GPUs and of its remote models; empty: named after the GPU, or REMOTE_POOL.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._devices: dict[str, Pool] = {}

    def of(self, device: str, product: Callable[[str], str]) -> Pool | None:
        """Returns the pool of a device other than the CPUs; None for the CPU itself.

        Args:
            device: such as "cuda:0".
            product: returns the product name of a device.
        """
        if device == CPU:
            return None
        if device not in self._devices:
            self._devices[device] = Pool(self._name or gpu_name(product(device)))
        return self._devices[device]

    @property
    def remote(self) -> Pool:
        """The pool of models that run in other services."""
        return Pool(self._name or REMOTE_POOL)


_SEPARATORS = re.compile(r"[^a-z0-9.]+")


def gpu_name(product: str) -> str:
    """Returns a GPU's name in the price table: "NVIDIA L4" is gpu-l4, "Tesla T4" gpu-t4."""
    words = [word for word in product.lower().split() if word not in {"nvidia", "tesla", "geforce"}]
    return "-".join(["gpu", *(_SEPARATORS.sub("-", word) for word in words)])


_workers: set[int] = set()
"""Process ids of workers that have not ended."""


def watch(process_id: int) -> None:
    """Includes a worker process in the processor time of this process."""
    _workers.add(process_id)


def forget(process_id: int, cpu_seconds: float = 0.0) -> None:
    """Removes a worker process that has ended.

    Args:
        process_id: the process.
        cpu_seconds: its processor time, if the system does not add it to that of this process's children.
    """
    global _ended_seconds  # noqa: PLW0603  # a counter
    with _ending:
        _ended_seconds += cpu_seconds
        _workers.discard(process_id)


_ending = threading.Lock()
_ended_seconds = 0.0
"""Processor time of ended workers that were not children of this process."""


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    workers = sum(cpu_seconds_of(process_id) for process_id in tuple(_workers)) if _workers else 0.0
    return time.process_time() + children.ru_utime + children.ru_stime + workers + _ended_seconds


def cpu_seconds_of(process_id: int) -> float:
    """Returns the processor time of another process on Linux; 0 on other systems."""
    with suppress(OSError):
        if sys.platform == "linux":
            return time.clock_gettime(~process_id << 3 | 2)
    return 0.0


def format_usage(used: Mapping[str, float]) -> str:
    """Formats seconds by pool for trailing metadata: "cpu=0.125000,gpu-l4=0.050000"."""
    return ",".join(f"{pool}={seconds:.6f}" for pool, seconds in dict(used).items())
