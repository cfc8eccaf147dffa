"""Limits on one isolated call, and the errors of a call that exceeds them."""

import signal
from dataclasses import dataclass, replace

from services.common.errors import InvalidRequest

LIMIT_REASON = "DECODE_LIMIT"
CRASH_REASON = "DECODE_CRASH"

MEMORY, PROCESSOR, WALL = "memory", "processor time", "time"
"""Names of the limits."""

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """Limits of one isolated call."""

    memory_bytes: int = 1280 * _MEBIBYTE
    """Address space in addition to what the worker process has mapped when the call starts."""
    cpu_seconds: float = 60.0
    """Processor time of the worker process, all its threads together."""
    wall_seconds: float = 120.0
    """Time from the start of the call in a worker process to its end; waiting for a worker does not count."""


class Budget:
    """Time that all isolated calls on one file share, such as those that render the pages of one document."""

    def __init__(self) -> None:
        self.cpu_seconds = self.wall_seconds = 0.0
        """Used so far."""
        self.is_slow = False
        """One of the calls was slow, so the next one is queued as a slow one."""

    def add(self, cpu_seconds: float, wall_seconds: float) -> None:
        self.cpu_seconds += cpu_seconds
        self.wall_seconds += wall_seconds

    def remaining(self, limits: Limits) -> Limits:
        """Returns the limits minus the time used."""
        return replace(
            limits,
            cpu_seconds=max(0.0, limits.cpu_seconds - self.cpu_seconds),
            wall_seconds=max(0.001, limits.wall_seconds - self.wall_seconds),
        )


def limit_error(exceeded: str, limits: Limits, *, file: str, port: str) -> InvalidRequest:
    """Returns the error of a call that exceeded MEMORY, PROCESSOR or WALL.

    Args:
        exceeded: which limit.
        limits: as configured.
        file: name of the file, or of the input.
        port: its input port.
    """
    amount, setting = {
        MEMORY: (f"{limits.memory_bytes // _MEBIBYTE} MiB of memory", "EXPERT_DECODE_MEMORY_BYTES"),
        PROCESSOR: (f"{limits.cpu_seconds:g} s of processor time", "EXPERT_DECODE_CPU_SECONDS"),
        WALL: (f"{limits.wall_seconds:g} s", "EXPERT_DECODE_WALL_SECONDS"),
    }[exceeded]
    return InvalidRequest(
        f"cannot process {file}: it takes more than {amount}, the limit for one file",
        reason=LIMIT_REASON,
        remedy=f"send a smaller or simpler file, or let the operator raise {setting}",
        port=port,
    )


def crash_error(status: int, *, file: str, port: str) -> InvalidRequest:
    """Returns the error of a call whose worker process crashed; the exit status is as in subprocess."""
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return InvalidRequest(
        f"cannot process {file}: the library that reads it crashed ({how})",
        reason=CRASH_REASON,
        remedy="open the file and save it again, or send it in another format",
        port=port,
    )
