"""Schedules the steps of a graph: each step runs once the steps it depends on have ended."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

R = TypeVar("R")


class Dag(Generic[R]):
    """A graph that grows while it runs; leaving the block waits for its last step.

    Steps are added after those they depend on, so there can be no cycle. If a step raises, the others are cancelled;
    a step whose failure must not cancel others returns it as a result.

    Args:
        run: executes a step, given the results of its dependencies.
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
        """Adds a step, which runs once its dependencies have ended.

        Raises:
            ValueError: the step exists already, or one of its dependencies does not.
        """
        if node in self._steps:
            raise ValueError(f"step {node} exists already")
        if missing := set(needs) - self._steps.keys():
            raise ValueError(f"step {node} depends on steps that do not exist: {sorted(missing)}")
        self._steps[node] = self._group.create_task(self._step(node, needs), name=f"step-{node}")

    def add_ended(self, node: int, result: R) -> None:
        """Adds a step that has ended before, with its result."""
        self._steps[node] = asyncio.get_running_loop().create_future()
        self._steps[node].set_result(result)

    async def wait_ended(self, seconds: float | None = None) -> None:
        """Waits until all steps have ended, or until the time has passed."""
        if self._steps:
            await asyncio.wait(self._steps.values(), timeout=seconds)

    async def _step(self, node: int, needs: Collection[int]) -> R:
        return await self._run(node, {need: await self._steps[need] for need in needs})
