"""Random numbers of torch that are the same each time: models here draw them deep inside, from the one generator."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_lock = Lock()
"""All threads share the generator."""


@contextmanager
def seeded(seed: int, device: Any) -> Iterator[None]:
    """What is drawn inside the block depends on the seed alone; afterwards the generator is as it was."""
    import torch

    with _lock, torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
