"""Buffers an answer's text into events: the first text at once, then one event per interval."""

import asyncio
from types import TracebackType
from typing import Self

from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEvent
from services.orchestrator.runs.run_log import RunLog

CHUNK_SECONDS = 0.05
"""Shortest time between two events of an answer."""


class AnswerBuffer:
    """Collects text for the answer of a run; leaving the block emits the rest.

    Args:
        run: receives the events.
    """

    def __init__(self, run: RunLog) -> None:
        self._run = run
        self._waiting = ""
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._next:
            self._next.cancel()
        self._flush()

    def add(self, text: str) -> None:
        """Adds text to the answer."""
        self._waiting += text
        if self._next is None:
            self._start_interval()

    def _start_interval(self) -> None:
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(CHUNK_SECONDS, self._start_interval) if self._waiting else None
        self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._run.emit(RunEvent(answer_chunk=AnswerChunk(text=self._waiting)))
            self._waiting = ""
