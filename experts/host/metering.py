"""What calls use: seconds of CPUs and of devices, shared out among those that are at work at the same time.

So what all calls used together is never more than what the process did, and the seconds of a GPU never more than went
by. What the process does meanwhile for nobody in particular is theirs, too.
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

ELSEWHERE = "elsewhere"
"""The pool of models that run in nobody's process here, if it has no other name."""

Clock = Callable[[], float]


class Meter:
    """Shares what a clock counts equally among those who are at work.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._at_work = 0
        self._last = self._each = 0.0

    def begin(self) -> float:
        """Somebody begins to work; gives what `end` wants to know."""
        with self._lock:
            self._share()
            self._at_work += 1
            return self._each

    def end(self, begun: float) -> float:
        """Somebody has worked; gives the seconds that were theirs."""
        with self._lock:
            self._share()
            self._at_work -= 1
            return self._each - begun

    def _share(self) -> None:
        now = self._clock()
        if self._at_work:
            self._each += max(0.0, now - self._last) / self._at_work
        self._last = max(self._last, now)  # a process that ends just now is missing for a moment


class User(Protocol):
    """A call, or a batch of them."""

    def uses(self, pool: str, seconds: float) -> None: ...


@dataclass(frozen=True)
class Pool:
    """Machines with one price, and how their seconds are counted here."""

    name: str
    meter: Meter = field(default_factory=Meter)
    _thread: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def used(self, user: User) -> AbstractContextManager[None]:
        """Whoever works within the block uses the pool; a block of the same thread around it counts for both."""
        return _NOT_AGAIN if hasattr(self._thread, "use") else _Use(self, user)


class _Use:
    """One thread that is at work."""

    __slots__ = ("_begun", "_pool", "_user")

    def __init__(self, pool: Pool, user: User) -> None:
        self._pool, self._user = pool, user

    def __enter__(self) -> None:
        self._pool._thread.use = self  # noqa: SLF001  # a part of it
        self._begun = self._pool.meter.begin()

    def __exit__(self, *_: object) -> None:
        del self._pool._thread.use  # noqa: SLF001  # likewise
        self._user.uses(self._pool.name, self._pool.meter.end(self._begun))


_NOT_AGAIN = nullcontext()


@cache
def cpus() -> Pool:
    """The CPUs, as far as this process and those it has started keep them busy."""
    return Pool(CPU, Meter(_cpu_seconds))


class Pools:
    """Where the models of an expert compute.

    Args:
        name: of its GPUs, and of where models run that do not run here; empty: after the GPU.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._devices: dict[str, Pool] = {}

    def of(self, device: str, product: Callable[[str], str]) -> Pool | None:
        """A device's pool beside the CPUs; None where there are only those.

        Args:
            device: such as "cuda:0".
            product: tells what a device is called by who made it.
        """
        if device == CPU:
            return None
        if device not in self._devices:
            self._devices[device] = Pool(self._name or gpu_name(product(device)))
        return self._devices[device]

    @property
    def elsewhere(self) -> Pool:
        return Pool(self._name or ELSEWHERE)


_SIGNS = re.compile(r"[^a-z0-9.]+")


def gpu_name(product: str) -> str:
    """A GPU's name in the price table: "NVIDIA L4" is gpu-l4, "Tesla T4" gpu-t4."""
    words = [word for word in product.lower().split() if word not in {"nvidia", "tesla", "geforce"}]
    return "-".join(["gpu", *(_SIGNS.sub("-", word) for word in words)])


_workers: set[int] = set()
"""Processes that this one has started and not yet seen end."""


def watch(process_id: int) -> None:
    """What a process of ours does counts from now on."""
    _workers.add(process_id)


def forget(process_id: int, cpu_seconds: float = 0.0) -> None:
    """It has ended.

    Args:
        process_id: which.
        cpu_seconds: what it has used, unless the system counts it among this process's children.
    """
    global _ended_seconds  # noqa: PLW0603  # a counter
    with _ending:
        _ended_seconds += cpu_seconds
        _workers.discard(process_id)


_ending = threading.Lock()
_ended_seconds = 0.0
"""What processes used that have ended and were children of another process."""


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    workers = sum(cpu_seconds_of(process_id) for process_id in tuple(_workers)) if _workers else 0.0
    return time.process_time() + children.ru_utime + children.ru_stime + workers + _ended_seconds


def cpu_seconds_of(process_id: int) -> float:
    """Of another process, where the system has a clock for each; 0 elsewhere."""
    with suppress(OSError):
        if sys.platform == "linux":
            return time.clock_gettime(~process_id << 3 | 2)
    return 0.0


def written(used: Mapping[str, float]) -> str:
    """Seconds by pool as trailing metadata carries them: "cpu=0.125000,gpu-l4=0.050000"."""
    return ",".join(f"{pool}={seconds:.6f}" for pool, seconds in dict(used).items())
