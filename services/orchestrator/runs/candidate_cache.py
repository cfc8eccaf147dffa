"""What the selector offers for a task, asked once for as long as its catalogue stays as it is."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import ExitStack
from typing import Self

from protos.hugginggpt.internal.v1.selector_pb2 import SelectResponse
from services.common import call_context
from services.orchestrator.experts.dormant import Change, Sleepers

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
        self._change: Change | None = None
        self._changed = asyncio.Event()
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
        changed = self._looked()
        if key not in self._answers:
            answer = await ask()
            if changed.is_set() or changed is not self._changed:
                return answer
            if len(self._answers) >= MOST:
                self._answers.clear()
            self._answers[key] = answer
        return self._answers[key]

    async def change(self, seconds: float) -> None:
        """Waits until the catalogue is another one, or so long."""
        changed = self._looked()
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    def _looked(self) -> asyncio.Event:
        """What the next change sets; what was known before the last one is forgotten."""
        if self._change is None:
            self._change = self._watched.enter_context(self._watch.watched())
            self._changed = self._change()
        if self._changed.is_set():
            self._answers.clear()
            self._changed = self._change()
        return self._changed
