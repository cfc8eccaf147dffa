"""Notifies watchers of runs and batches of changes in the journal."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class ChangeNotifier:
    """Subscriptions by run or batch ID."""

    def __init__(self) -> None:
        self._subscribers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def subscribed(self, run_id: str) -> Iterator[asyncio.Event]:
        """An event that each change of the run sets; clear it before reading the run."""
        changed = asyncio.Event()
        self._subscribers[run_id].add(changed)
        try:
            yield changed
        finally:
            self._subscribers[run_id].discard(changed)
            if not self._subscribers[run_id]:
                del self._subscribers[run_id]

    def notify(self, run_ids: Collection[str] | None) -> None:
        """Notifies the subscribers of these IDs, or all subscribers."""
        for run_id in list(self._subscribers) if run_ids is None else run_ids:
            for changed in self._subscribers.get(run_id, ()):
                changed.set()
