"""What an orchestrator does for as long as it lives."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from services.orchestrator.live import JOURNAL_PAUSE_SECONDS
from services.runtime.errors import Unavailable

log = structlog.get_logger(__name__)


async def forever(step: Callable[[], Awaitable[None]]) -> None:
    """Begins a step anew whenever it ends or breaks."""
    while True:
        try:
            await step()
        except Unavailable as error:
            log.warning("the journal does not answer", error=error.message)
        except Exception:
            log.exception("unexpected error")
        await asyncio.sleep(JOURNAL_PAUSE_SECONDS)
