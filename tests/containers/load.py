"""Constant load: concurrent clients that repeat one run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.client import AsyncHuggingGPT, Run

CALLERS = 8
TEXT = "The bridge was closed in May. Workers repair its deck. The bridge will open again in autumn."
PLAN = [{"id": 1, "task": "summarization", "arguments": {"text": TEXT}}]


class Load:
    """Finished runs of concurrent clients."""

    def __init__(self, client: AsyncHuggingGPT) -> None:
        self.runs: list[Run] = []
        self._client = client
        self._ended = asyncio.Condition()

    async def call(self) -> None:
        """Starts one run after another until cancelled."""
        while True:
            run = await self._client.ask(plan=PLAN, bypass_memo=True, mode="results")
            async with self._ended:
                self.runs.append(run)
                self._ended.notify_all()

    async def wait_until(self, condition: Callable[[list[Run]], bool], seconds: float) -> None:
        """Waits until the finished runs satisfy a condition."""
        async with asyncio.timeout(seconds), self._ended:
            await self._ended.wait_for(lambda: condition(self.runs))

    async def next_runs(self, count: int, seconds: float = 60) -> list[Run]:
        """Waits for at least `count` further runs to end, and returns them."""
        before = len(self.runs)
        await self.wait_until(lambda runs: len(runs) >= before + count, seconds)
        return self.runs[before:]


@asynccontextmanager
async def load(client: AsyncHuggingGPT) -> AsyncIterator[Load]:
    """Runs CALLERS concurrent clients until the block exits."""
    running = Load(client)
    async with asyncio.TaskGroup() as callers:
        tasks = [callers.create_task(running.call()) for _ in range(CALLERS)]
        yield running
        for task in tasks:
            task.cancel()


def revisions(runs: list[Run]) -> set[str]:
    """Revisions of the models that produced the results."""
    return {result.by.revision for run in runs for task in run.tasks if (result := task.result) and result.by}
