"""Order of the steps of a graph."""

import asyncio
from collections.abc import Mapping

import pytest

from services.orchestrator.dag import Dag


async def test_independent_steps_overlap() -> None:
    together = asyncio.Barrier(2)  # passes only if both are active

    async def run(node: int, needs: Mapping[int, int]) -> int:
        await together.wait()
        return node

    async with asyncio.timeout(10), Dag[int](run) as dag:
        dag.add(1)
        dag.add(2)


async def test_step_gets_the_results_of_its_dependencies() -> None:
    got: dict[int, dict[int, int]] = {}

    async def run(node: int, needs: Mapping[int, int]) -> int:
        got[node] = dict(needs)
        return node * 10

    async with Dag[int](run) as dag:
        dag.add(1)
        dag.add(2)
        dag.add(3, {1, 2})
    assert got == {1: {}, 2: {}, 3: {1: 10, 2: 20}}


async def test_step_starts_before_the_graph_is_complete() -> None:
    started = asyncio.Event()

    async def run(node: int, needs: Mapping[int, None]) -> None:
        started.set()

    async with asyncio.timeout(10), Dag[None](run) as dag:
        dag.add(1)
        await started.wait()
        dag.add(2, {1})


async def test_ended_step_is_not_executed_again() -> None:
    ran: list[int] = []

    async def run(node: int, needs: Mapping[int, str]) -> str:
        ran.append(node)
        return needs[1]

    async with Dag[str](run) as dag:
        dag.add_ended(1, "stored")
        dag.add(2, {1})
    assert ran == [2]


@pytest.mark.parametrize(("node", "needs"), [(1, set()), (2, {3}), (2, {2})])
async def test_known_step_or_unknown_dependency_is_refused(node: int, needs: set[int]) -> None:
    async def run(node: int, needs: Mapping[int, None]) -> None:
        return None

    async with Dag[None](run) as dag:
        dag.add(1)
        with pytest.raises(ValueError, match="step"):
            dag.add(node, needs)


async def test_step_that_raises_cancels_the_others() -> None:
    waiting = asyncio.Event()
    cancelled = False

    async def run(node: int, needs: Mapping[int, None]) -> None:
        nonlocal cancelled
        if node == 1:
            await waiting.wait()
            raise ZeroDivisionError
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(10), Dag[None](run) as dag:
            dag.add(1)
            dag.add(2)
    assert cancelled
