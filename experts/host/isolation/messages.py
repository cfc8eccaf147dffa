"""Messages between an expert and a worker process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prepare:
    """Loads what the worker needs for every call; the first message, answered by Done or Failed."""

    function: Callable[..., Any] | None
    arguments: tuple[Any, ...] = ()


NOTHING = Prepare(None)


@dataclass(frozen=True)
class Run:
    """One call."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory_bytes: int
    """Address space in addition to what is already mapped."""
    cpu_seconds: float


@dataclass(frozen=True)
class Progress:
    """Progress of the call."""

    fraction: float
    message: str


@dataclass(frozen=True)
class Done:
    """The result of the call."""

    result: Any
    cpu_seconds: float


@dataclass(frozen=True)
class Failed:
    """The error of the call."""

    error: Exception
    cpu_seconds: float
    where: tuple[str, ...] = ()
    """Stack trace of an unexpected error."""


@dataclass(frozen=True)
class OutOfMemory:
    """The call exceeded its memory; the worker ends after this message."""

    cpu_seconds: float
