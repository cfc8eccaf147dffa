"""Waiting at startup for dependencies that are not available yet."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from services.common.errors import Unavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

TIMEOUT_SECONDS = 30.0
"""Longest wait. After it the process exits, and its supervisor restarts it."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0


async def until_available(dependency: str, call: Callable[[], Awaitable[T]]) -> T:
    """Repeats a call with exponential backoff for as long as it raises Unavailable.

    Args:
        dependency: its name in the log.
        call: connects to the dependency, or checks it.

    Raises:
        Unavailable: the last error, after TIMEOUT_SECONDS.
    """
    until, pause = time.monotonic() + TIMEOUT_SECONDS, _FIRST_PAUSE
    while True:
        try:
            return await call()
        except Unavailable as error:
            left = until - time.monotonic()
            if left <= 0:
                raise
            log.warning("waiting for dependency", dependency=dependency, error=error.message, remedy=error.remedy)
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
