"""Waking those who watch runs that others write."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class Bells:
    """One bell for each run that is watched."""

    def __init__(self) -> None:
        self._listening: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def listening(self, run_id: str) -> Iterator[asyncio.Event]:
        """Set whenever something may have happened to the run; to be cleared before looking."""
        bell = asyncio.Event()
        self._listening[run_id].add(bell)
        try:
            yield bell
        finally:
            self._listening[run_id].discard(bell)
            if not self._listening[run_id]:
                del self._listening[run_id]

    def ring(self, run_ids: Collection[str] | None) -> None:
        """Wakes who listens for these runs, or everybody."""
        for run_id in list(self._listening) if run_ids is None else run_ids:
            for bell in self._listening.get(run_id, ()):
                bell.set()
