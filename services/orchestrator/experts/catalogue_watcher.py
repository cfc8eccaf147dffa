"""Watches the selector's catalogue for changes, such as the start of a dormant expert."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Self

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
    """Watches the catalogue by one stream, which is open while any user of this process watches.

    Args:
        selector: serves the catalogue.
    """

    def __init__(self, selector: "SelectorServiceAsyncStub") -> None:
        self._selector = selector
        self._users = 0
        self._watch: asyncio.Task[None] | None = None
        self._changed = ChangeSignal()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    @contextmanager
    def watched(self) -> Iterator[ChangeSignal]:
        """Watches the catalogue within the block; opening the stream counts as a change."""
        self._users += 1
        if self._watch is None:
            # An own context: the stream outlives the run for which it was opened.
            watch = supervise(self._follow, name="catalogue watch")
            self._watch = asyncio.create_task(watch, name="watch-catalogue", context=Context())
        try:
            yield self._changed
        finally:
            self._users -= 1
            if not self._users:
                self._close()

    def _close(self) -> None:
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
