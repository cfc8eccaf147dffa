"""Progress of a download: logged, and reported to the load context."""

import time
from collections.abc import Iterable, Iterator
from threading import Lock
from types import TracebackType
from typing import Any, Self

import structlog

from experts.host import load_context

log = structlog.get_logger(__name__)

EVERY_SECONDS = 5.0
"""Interval of log entries."""
_MEGABYTE = 1_000_000


class Download:
    """Download of one model's files."""

    def __init__(self, model_id: str, total: int) -> None:
        self._model_id, self._total, self._done = model_id, total, 0
        self._progress = load_context.current().progress  # the downloading threads have no context of their own
        self._started_at = self._logged_at = time.monotonic()
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._done and kind is None:
            seconds = round(time.monotonic() - self._started_at, 1)
            log.info("downloaded", model=self._model_id, megabytes=self._done // _MEGABYTE, seconds=seconds)

    def add(self, count: int) -> None:
        """Adds received bytes; callable from any thread."""
        with self._lock:
            self._done += count
            done, due = self._done, time.monotonic() - self._logged_at >= EVERY_SECONDS
            if due:
                self._logged_at = time.monotonic()
        megabytes, of = done // _MEGABYTE, max(self._total, done) // _MEGABYTE
        self._progress(done / max(self._total, done, 1), f"downloading the model: {megabytes} of {of} MB")
        if due:
            log.info("downloading", model=self._model_id, megabytes=megabytes, of=of)

    @property
    def progress_bar(self) -> type[Any]:
        """Progress bar class for huggingface_hub; of its several bars, only the one of written bytes is counted."""
        download = self

        class ProgressBar:
            def __init__(self, iterable: Iterable[Any] = (), *_: Any, **options: Any) -> None:
                self._iterable, self._counts = iterable, "econstruct" in str(options.get("desc"))
                self.total, self.n, self.desc = options.get("total"), 0, options.get("desc")

            def __iter__(self) -> Iterator[Any]:
                return iter(self._iterable)

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def update(self, count: float | None = 1) -> None:
                if self._counts and count:
                    download.add(int(count))

            def __getattr__(self, _name: str) -> Any:
                return _ignore

            _lock = Lock()

            @classmethod
            def get_lock(cls) -> Any:
                return cls._lock

            @classmethod
            def set_lock(cls, lock: Any) -> None:
                cls._lock = lock

        return ProgressBar


def _ignore(*_: Any, **__: Any) -> None:
    """Replaces the display methods of a progress bar."""
