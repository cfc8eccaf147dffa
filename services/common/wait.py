"""What a process cannot do without and is not there yet when it starts: waited for, which every try says."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from services.common.errors import Unavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

SECONDS = 30.0
"""How long it is waited for; then the process ends, and whoever keeps it starts it anew."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0


async def awaited(what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Asks until there is an answer, with pauses that grow.

    Args:
        what: as the log calls it.
        ask: raises Unavailable as long as it is not there.

    Raises:
        Unavailable: it has not come in time.
    """
    until, pause = time.monotonic() + SECONDS, _FIRST_PAUSE
    while True:
        try:
            return await ask()
        except Unavailable as error:
            left = until - time.monotonic()
            if left <= 0:
                raise
            log.warning("waiting at the start", wanted=what, error=error.message, remedy=error.remedy)
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
