"""Caches the selector's responses until the catalogue changes."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import ExitStack
from typing import Self

from protos.hugginggpt.internal.v1.selector_pb2 import SelectResponse
from services.common import call_context
from services.common.change_signal import ChangeSignal
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher

Select = Callable[[], Awaitable[SelectResponse]]

LOOK_SECONDS = 5.0
"""Interval at which availability is checked again while the catalogue does not change."""

MAX_RESPONSES = 1_000
"""Number of cached responses; with more, all are dropped."""


class CandidateCache:
    """The selector's responses, dropped whenever the catalogue changes; the catalogue is watched from first use.

    Args:
        watcher: watches the catalogue.
    """

    def __init__(self, watcher: CatalogueWatcher) -> None:
        self._watcher = watcher
        self._watching = ExitStack()
        self._changed: ChangeSignal | None = None
        self._version = 0
        self._responses: dict[tuple[Hashable, int], SelectResponse] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.close()

    async def get(self, key: Hashable, select: Select) -> SelectResponse:
        """A response that depends only on the catalogue and the data policy; calls `select` if it is not cached.

        Raises:
            ServiceError: there is no candidate, or the selector is unavailable.
        """
        key = (key, call_context.current().policy)
        version = self._current_version()
        if key not in self._responses:
            response = await select()
            if self._current_version() != version:
                return response
            if len(self._responses) >= MAX_RESPONSES:
                self._responses.clear()
            self._responses[key] = response
        return self._responses[key]

    async def wait_for_change(self, seconds: float) -> None:
        """Waits until the catalogue changes, or until the time has passed."""
        changed, version = self._watch_changes(), self._current_version()
        try:
            async with asyncio.timeout(seconds):
                await changed.wait(version)
        except TimeoutError:
            return

    def _watch_changes(self) -> ChangeSignal:
        """The signal of changes of the catalogue, watched from the first call on."""
        if self._changed is None:
            self._changed = self._watching.enter_context(self._watcher.watched())
            self._version = self._changed.version
        return self._changed

    def _current_version(self) -> int:
        """Version of the catalogue; when it has changed, the cached responses are dropped."""
        version = self._watch_changes().version
        if version != self._version:
            self._responses.clear()
            self._version = version
        return version
