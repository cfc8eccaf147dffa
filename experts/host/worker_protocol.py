"""Messages between an expert and its model worker processes, pickled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Batching
from experts.host.isolation import Configuration

LOAD = 0
"""Request number of the load, which the Start message requests."""


@dataclass(frozen=True)
class Start:
    """First message to a worker: configures it and requests the load of its model."""

    path: Sequence[str]
    """Module search path."""
    loader: bytes
    """The pickled loader; must be unpickled after the path is set."""
    task: str
    model_id: str
    revision: str
    device: str
    dtype: str
    batch_scale: float
    attention: str
    tf32: bool | None
    """As in LoadContext, like those before."""
    threads: int
    load_seconds: float
    """Timeout of the load, after which the worker is killed."""
    log: tuple[str, str]
    """Level and format."""
    isolation: Configuration
    """Configuration of the worker's own decoding processes."""


@dataclass(frozen=True)
class LoadedInfo:
    """Properties of a loaded model."""

    batching: Batching
    revision: str
    resident_bytes: int
    concurrent: bool
    """Whether its work runs in other processes or services, so that a worker process is of no use."""


@dataclass(frozen=True)
class Request:
    """A step to run for one call or for a batch."""

    number: int
    step: str
    """"prepare", "run" or "finish"."""
    items: tuple[int, ...]
    caller: bytes
    arguments: Any = None
    discarded: tuple[int, ...] = ()
    """Items that are no longer needed."""


@dataclass(frozen=True)
class Cancel:
    """All callers of a batch have left."""

    number: int


@dataclass(frozen=True)
class Reply:
    """Result or error of a request."""

    number: int
    result: Any = None
    error: Exception | None = None


@dataclass(frozen=True)
class Progress:
    """Progress of a load or a batch."""

    number: int
    fraction: float
    message: str
