"""Engines shared by several tasks: loaded once, released with the last user."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import ref

Engine = TypeVar("Engine")


class Shared(Generic[Engine]):
    """Returns the same engine to all users, and creates a new one after the last user has released it."""

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
