"""Waits for experts that are scaled to zero, by watching the selector's catalogue."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING

import grpc
import structlog

from protos.hugginggpt.internal.v1.selector_pb2 import WatchCatalogueRequest
from services.common.change_signal import ChangeSignal
from services.common.supervision import supervise
from services.orchestrator.experts.retry import backoff

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

log = structlog.get_logger(__name__)

WATCH_SECONDS = 600.0
"""Length of one WatchCatalogue call; it is repeated, since every call has a deadline."""


class CatalogueWatcher:
    """Watches the catalogue by one stream for as long as a task waits for a change.

    Args:
        selector: serves the catalogue.
    """

    def __init__(self, selector: "SelectorServiceAsyncStub") -> None:
        self._selector = selector
        self._waiting = 0
        self._watch: asyncio.Task[None] | None = None
        self._changed = ChangeSignal()

    @contextmanager
    def watched(self) -> Iterator[ChangeSignal]:
        """Watches the catalogue within the block; opening the stream counts as a change."""
        self._waiting += 1
        if self._watch is None:
            # An own context: the stream outlives the run for which it was opened.
            watch = supervise(self._follow, name="catalogue watch")
            self._watch = asyncio.create_task(watch, name="watch-catalogue", context=Context())
        try:
            yield self._changed
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.close()

    def close(self) -> None:
        """Closes the stream."""
        if self._watch:
            self._watch.cancel()
            self._watch = None

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for _ in self._selector.WatchCatalogue(WatchCatalogueRequest(), timeout=WATCH_SECONDS):
                    failures = 0
                    self._changed.notify()
            except grpc.aio.AioRpcError as error:
                failures += 1
                log.info("catalogue watch restarted", code=error.code().name)
            await asyncio.sleep(backoff(max(failures, 1)))
