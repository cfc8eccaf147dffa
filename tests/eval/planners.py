"""Planners to evaluate, and their timed outcomes for every request, including failures."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

from services.planner.embedded.planning import Embedded
from services.planner.plan import Decision, Draft
from services.planner.request import Request
from services.planner.task_spec import Catalogue, standard_specs
from tests.eval.attached import request, stand_ins
from tests.eval.lines import Line

T = TypeVar("T")
R = TypeVar("R")

Plan = Callable[[Request, Catalogue], Awaitable[Draft]]


@dataclass(frozen=True, slots=True)
class Planner:
    """A planner, and the number of its concurrent requests."""

    plan: Plan
    concurrency: int = 1


WARM_UP = 3
"""Number of requests that are planned before the timed ones."""

NOTHING = Draft((), (), Decision("none", "The planner failed."))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one request."""

    draft: Draft
    request: Request
    """The planner's input, including stand-in files."""
    milliseconds: float = 0.0
    error: str = ""


@asynccontextmanager
async def embedded() -> AsyncIterator[Planner]:
    """The embedded planner, in this process and thread."""
    controller = Embedded(standard_specs())

    async def plan(request: Request, catalogue: Catalogue) -> Draft:
        return controller.plan(request, catalogue)

    yield Planner(plan)


async def outcomes(
    planner: Planner, lines: Sequence[Line], catalogue: Catalogue, *, quiet: bool = True
) -> list[Outcome]:
    """Outcomes of all lines in order; failures are outcomes with an error."""
    for line in lines[:WARM_UP]:
        await _outcome(planner.plan, line, catalogue)
    with Progress(console=Console(stderr=True), disable=quiet, transient=True) as progress:
        bar = progress.add_task("planning", total=len(lines))

        async def one(line: Line) -> Outcome:
            outcome = await _outcome(planner.plan, line, catalogue)
            progress.advance(bar)
            return outcome

        return await gather_limited(lines, one, limit=planner.concurrency)


async def gather_limited(items: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int) -> list[R]:
    """Results of work for each item, in order, with at most `limit` concurrent calls."""
    slots = asyncio.Semaphore(limit)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


async def _outcome(plan: Plan, line: Line, catalogue: Catalogue) -> Outcome:
    initial = request(line)
    started = time.perf_counter()
    try:
        draft = await plan(initial, catalogue)
        milliseconds = 1000 * (time.perf_counter() - started)
        if more := stand_ins(line, draft):
            fuller = request(line, more)
            again = await plan(fuller, catalogue)
            if len(again.tasks) > len(draft.tasks):
                return Outcome(again, fuller, milliseconds)
    except Exception as error:  # noqa: BLE001  # the other requests are evaluated nevertheless
        milliseconds = 1000 * (time.perf_counter() - started)
        return Outcome(NOTHING, initial, milliseconds, error=f"{type(error).__name__}: {error}")
    return Outcome(draft, initial, milliseconds)
