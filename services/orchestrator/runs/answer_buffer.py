"""An answer on its way into events: the first words at once, then as many as have come in a while."""

import asyncio
from types import TracebackType
from typing import Self

from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEvent
from services.orchestrator.runs.run_log import LiveRun

CHUNK_SECONDS = 0.05
"""Least time between two pieces of an answer."""


class Words:
    """Words for the answer of a run; leaving the block tells those that still wait.

    Args:
        run: told of the answer, piece by piece.
    """

    def __init__(self, run: LiveRun) -> None:
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
        self._tell()

    def add(self, text: str) -> None:
        self._waiting += text
        if self._next is None:
            self._pass_on()

    def _pass_on(self) -> None:
        self._next = asyncio.get_running_loop().call_later(CHUNK_SECONDS, self._pass_on) if self._waiting else None
        self._tell()

    def _tell(self) -> None:
        if self._waiting:
            self._run.emit(RunEvent(answer_chunk=AnswerChunk(text=self._waiting)))
            self._waiting = ""
