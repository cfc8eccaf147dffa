"""Callers who ask a house for the same again and again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.client import AsyncHuggingGPT, Run

CALLERS = 8
TEXT = "The bridge was closed in May. Workers repair its deck. The bridge will open again in autumn."
PLAN = [{"id": 1, "task": "summarization", "arguments": {"text": TEXT}}]


class Load:
    """Runs as they end."""

    def __init__(self, client: AsyncHuggingGPT) -> None:
        self.runs: list[Run] = []
        self._client = client
        self._ended = asyncio.Condition()

    async def call(self) -> None:
        """One caller, for ever."""
        while True:
            run = await self._client.ask(plan=PLAN, bypass_memo=True, mode="results")
            async with self._ended:
                self.runs.append(run)
                self._ended.notify_all()

    async def until(self, holds: Callable[[list[Run]], bool], seconds: float) -> None:
        """Waits until something holds of the runs that have ended."""
        async with asyncio.timeout(seconds), self._ended:
            await self._ended.wait_for(lambda: holds(self.runs))

    async def more(self, count: int, seconds: float = 60) -> list[Run]:
        """The next runs that end, so many at least."""
        before = len(self.runs)
        await self.until(lambda runs: len(runs) >= before + count, seconds)
        return self.runs[before:]


@asynccontextmanager
async def load(client: AsyncHuggingGPT) -> AsyncIterator[Load]:
    """Callers that ask as long as the block lasts."""
    running = Load(client)
    async with asyncio.TaskGroup() as callers:
        tasks = [callers.create_task(running.call()) for _ in range(CALLERS)]
        yield running
        for task in tasks:
            task.cancel()


def revisions(runs: list[Run]) -> set[str]:
    """Of the models that have answered."""
    return {result.by.revision for run in runs for task in run.tasks if (result := task.result) and result.by}
