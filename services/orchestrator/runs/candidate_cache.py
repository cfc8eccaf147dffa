"""What the selector offers for a task, asked once for as long as its catalogue stays as it is."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import ExitStack
from typing import Self

from protos.hugginggpt.internal.v1.selector_pb2 import SelectResponse
from services.common import call_context
from services.common.change_signal import ChangeSignal
from services.orchestrator.experts.dormant import Sleepers

Ask = Callable[[], Awaitable[SelectResponse]]

LOOK_SECONDS = 5.0
"""How often it is looked whether something can be done by now, if the catalogue does not change."""

MOST = 1_000
"""Answers kept; with more, all are forgotten."""


class Catalogue:
    """The selector's answers, forgotten whenever the catalogue changes; watched from the first question on.

    Args:
        watch: tells of changes.
    """

    def __init__(self, watch: Sleepers) -> None:
        self._watch = watch
        self._watched = ExitStack()
        self._changed: ChangeSignal | None = None
        self._version = 0
        self._answers: dict[tuple[Hashable, int], SelectResponse] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watched.close()

    async def offered(self, question: Hashable, ask: Ask) -> SelectResponse:
        """The answer to a question that only the catalogue and the data policy decide; asked if it is not known.

        Raises:
            ServiceError: nobody can do it, or the selector does not answer.
        """
        key = (question, call_context.current().policy)
        version = self._current_version()
        if key not in self._answers:
            answer = await ask()
            if self._current_version() != version:
                return answer
            if len(self._answers) >= MOST:
                self._answers.clear()
            self._answers[key] = answer
        return self._answers[key]

    async def change(self, seconds: float) -> None:
        """Waits until the catalogue is another one, or so long."""
        changed, version = self._watch_changes(), self._current_version()
        try:
            async with asyncio.timeout(seconds):
                await changed.wait(version)
        except TimeoutError:
            return

    def _watch_changes(self) -> ChangeSignal:
        """The signal of changes of the catalogue, watched from the first call on."""
        if self._changed is None:
            self._changed = self._watched.enter_context(self._watch.watched())
            self._version = self._changed.version
        return self._changed

    def _current_version(self) -> int:
        """Version of the catalogue; when it has changed, the stored answers are dropped."""
        version = self._watch_changes().version
        if version != self._version:
            self._answers.clear()
            self._version = version
        return version
