"""Scheduling only: steps run as they come, each once those it needs have ended."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

R = TypeVar("R")


class Dag(Generic[R]):
    """A graph that grows while it runs; leaving the block waits for its last step.

    Steps are added after those they need, so there can be no cycle. If a step raises, the rest is cancelled;
    one that may fail alone returns its failure.

    Args:
        run: does a step, given the results it needs.
    """

    def __init__(self, run: Callable[[int, Mapping[int, R]], Awaitable[R]]) -> None:
        self._run = run
        self._steps: dict[int, asyncio.Future[R]] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._group.__aexit__(kind, error, trace)

    def add(self, node: int, needs: Collection[int] = ()) -> None:
        """Runs a step once what it needs has ended.

        Raises:
            ValueError: the step is there already, or something it needs is not.
        """
        if node in self._steps:
            raise ValueError(f"step {node} is there already")
        if missing := set(needs) - self._steps.keys():
            raise ValueError(f"step {node} needs {sorted(missing)}, not there yet")
        self._steps[node] = self._group.create_task(self._step(node, needs), name=f"step-{node}")

    def add_ended(self, node: int, result: R) -> None:
        """A step that ended before."""
        self._steps[node] = asyncio.get_running_loop().create_future()
        self._steps[node].set_result(result)

    async def settled(self, seconds: float | None = None) -> None:
        """Waits until all steps have ended, or for so long."""
        if self._steps:
            await asyncio.wait(self._steps.values(), timeout=seconds)

    async def _step(self, node: int, needs: Collection[int]) -> R:
        return await self._run(node, {need: await self._steps[need] for need in needs})
