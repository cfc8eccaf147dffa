"""What an expert and its worker processes say to each other, pickled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Batching
from experts.host.isolation import Configuration

LOAD = 0
"""The number of the first request, which Start stands for."""


@dataclass(frozen=True)
class Start:
    """What a worker is told first."""

    path: Sequence[str]
    """Where its modules are."""
    loader: bytes
    """Pickled by name, and to be read only once the path is known."""
    task: str
    model_id: str
    revision: str
    device: str
    dtype: str
    threads: int
    load_seconds: float
    """Longest load; beyond it the worker is ended."""
    log: tuple[str, str]
    """Level and format."""
    isolation: Configuration
    """The processes that it decodes files in."""


@dataclass(frozen=True)
class Told:
    """What a loaded model says of itself."""

    batching: Batching | None
    revision: str
    resident_bytes: int
    elsewhere: bool
    """It needs no process: it asks others."""


@dataclass(frozen=True)
class Request:
    """Something to do for one caller, or for a batch of them."""

    number: int
    step: str
    """"prepare", "run" or "finish"."""
    items: tuple[int, ...]
    caller: bytes
    given: Any = None
    forget: tuple[int, ...] = ()
    """Items nobody will ask for any more."""


@dataclass(frozen=True)
class Cancel:
    """Nobody waits for a batch any more."""

    number: int


@dataclass(frozen=True)
class Reply:
    """What came of a request."""

    number: int
    result: Any = None
    error: Exception | None = None


@dataclass(frozen=True)
class Progress:
    """How far a load or a batch is."""

    number: int
    fraction: float
    message: str
