"""Engines that several tasks stand on: loaded once, kept as long as one of them is."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import ref

Engine = TypeVar("Engine")


class Shared(Generic[Engine]):
    """Hands the same engine to all who ask, and makes a new one when the last has let go of it."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._lock = Lock()
        self._last: ref[Engine] | None = None

    def get(self) -> Engine:
        with self._lock:
            engine = self._last() if self._last else None
            if engine is None:
                engine = self._load()
                self._last = ref(engine)
            return engine
