"""Engines that several tasks share: loaded once, released with the last user."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import ref

Engine = TypeVar("Engine")


class SharedEngine(Generic[Engine]):
    """Returns the same engine to all users, and creates a new one after the last user has released it.

    Args:
        load: creates an engine.
        is_closed: whether an engine takes no more calls, because the host that started its processes has ended.
    """

    def __init__(self, load: Callable[[], Engine], *, is_closed: Callable[[Engine], bool] = lambda _: False) -> None:
        self._load, self._is_closed = load, is_closed
        self._lock = Lock()
        self._latest: ref[Engine] | None = None

    def get(self) -> Engine:
        with self._lock:
            engine = self._latest() if self._latest else None
            if engine is None or self._is_closed(engine):
                engine = self._load()
                self._latest = ref(engine)
            return engine
