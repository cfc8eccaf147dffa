"""Seeds torch's default random generator, which models use internally, for the duration of one call."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_lock = Lock()
"""Threads share the generator."""


@contextmanager
def use_seed(seed: int, device: Any) -> Iterator[None]:
    """Context in which random numbers depend on the seed alone; restores the generator afterwards."""
    import torch

    with _lock, torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
