"""Supervision within a process: background loops that are restarted after errors, and waiting for dependencies."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from services.common.errors import ServiceError, Unavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

RESTART_SECONDS = 0.5
"""Default pause before a failed loop is restarted."""

LONGEST_PAUSE_SECONDS = 30.0
"""Consecutive unexpected exceptions double the pause, up to this."""

STABLE_SECONDS = 60.0
"""A loop that has run this long before it fails is restarted after the first pause again."""

STARTUP_SECONDS = 30.0
"""Longest wait for a dependency at startup. After it the process exits, and its supervisor restarts it."""

_FIRST_STARTUP_PAUSE, _LONGEST_STARTUP_PAUSE = 0.25, 5.0


async def supervise(loop: Callable[[], Awaitable[None]], *, name: str, pause: float = RESTART_SECONDS) -> None:
    """Runs a background loop until it returns, and restarts it when it raises.

    Otherwise an unexpected exception would end the background task until the process restarts.

    Args:
        loop: the coroutine function, called for each start.
        name: the loop's name in the log.
        pause: seconds between an error and the next start.
    """
    failures = 0
    while True:
        started = time.monotonic()
        try:
            return await loop()
        except ServiceError as error:
            failures, seconds = 0, pause
            log.warning("background loop interrupted", loop=name, error=error.message, retry_seconds=seconds)
        except Exception:
            failures = 0 if time.monotonic() - started >= STABLE_SECONDS else failures
            seconds = min(pause * 2**failures, max(pause, LONGEST_PAUSE_SECONDS))
            failures += 1
            log.exception("background loop failed", loop=name, retry_seconds=seconds)
        await asyncio.sleep(seconds)


async def until_available(dependency: str, call: Callable[[], Awaitable[T]]) -> T:
    """Repeats a call with exponential backoff for as long as it raises Unavailable.

    Args:
        dependency: its name in the log.
        call: connects to the dependency, or checks it.

    Raises:
        Unavailable: the last error, after STARTUP_SECONDS.
    """
    until, pause = time.monotonic() + STARTUP_SECONDS, _FIRST_STARTUP_PAUSE
    while True:
        try:
            return await call()
        except Unavailable as error:
            left = until - time.monotonic()
            if left <= 0:
                raise
            log.warning("waiting for dependency", dependency=dependency, error=error.message, remedy=error.remedy)
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_STARTUP_PAUSE)
