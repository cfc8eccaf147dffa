"""Waiting for experts that sleep: whoever waits is woken when the catalogue changes."""

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
from services.orchestrator.experts.backoff import backoff

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

log = structlog.get_logger(__name__)

WATCH_SECONDS = 600.0
"""After which the catalogue is watched anew: every call has a deadline."""


class Sleepers:
    """The catalogue, watched by one stream for as long as anybody waits.

    Args:
        selector: whose catalogue it is.
    """

    def __init__(self, selector: "SelectorServiceAsyncStub") -> None:
        self._selector = selector
        self._waiting = 0
        self._watch: asyncio.Task[None] | None = None
        self._changed = ChangeSignal()

    @contextmanager
    def watched(self) -> Iterator[ChangeSignal]:
        """Within the block changes are told; the first as soon as the stream stands, for what was missed until then."""
        self._waiting += 1
        if self._watch is None:
            # In a context of its own: it outlives the run for which it was opened.
            following = supervise(self._follow, name="catalogue watch")
            self._watch = asyncio.create_task(following, name="watch-catalogue", context=Context())
        try:
            yield self._changed
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.close()

    def close(self) -> None:
        """Ends the stream."""
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
                log.info("the catalogue is watched anew", code=error.code().name)
            await asyncio.sleep(backoff(max(failures, 1)))
