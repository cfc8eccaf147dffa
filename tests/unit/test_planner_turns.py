"""Concurrent plans of the embedded planner, and limits of the text that it reads."""

import asyncio
import threading
from typing import cast

import pytest

from services.planner.catalog import TaskCatalog
from services.planner.embedded import rules
from services.planner.embedded.planning import Embedded
from services.planner.embedded.rules import Rules
from services.planner.plan import Decision, Draft
from services.planner.planner import LONG, Planner, Step
from services.planner.process import PlanningProcess
from services.planner.request import Request
from services.planner.task_spec import Catalogue
from tests.support.plans import LITE, STANDARD, plan_request

SHORT = "describe it"


class LiteCatalog:
    async def tasks(self) -> Catalogue:
        return LITE


class Blocked:
    """Plans one text only once the test releases it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.started, self.released = threading.Event(), threading.Event()
        self.planned: list[str] = []

    def plan(self, request: Request, _: Catalogue) -> Draft:
        if request.text == self._text:
            self.started.set()
            assert self.released.wait(10)
        self.planned.append(request.text)
        return Draft((), (), Decision("embedded", "", 1.0))


class BlockedProcess:
    """Plans long requests only once the test releases it."""

    def __init__(self) -> None:
        self.started, self.released = asyncio.Event(), asyncio.Event()

    async def plan(self, _request: Request, _catalogue: Catalogue) -> Draft:
        self.started.set()
        await self.released.wait()
        return Draft((), (), Decision("embedded", "", 1.0))


async def plan_steps(blocked: Blocked, text: str, process: BlockedProcess | None = None) -> list[Step]:
    steps: list[Step] = []

    async def emit(step: Step) -> None:
        steps.append(step)

    planner = Planner(
        cast("TaskCatalog", LiteCatalog()), cast("Embedded", blocked), process=cast("PlanningProcess | None", process)
    )
    await planner.plan(plan_request(text), emit)
    return steps


async def test_long_request_does_not_block_other_plans() -> None:
    blocked, process = Blocked("another"), BlockedProcess()
    async with asyncio.timeout(10):
        long = asyncio.create_task(plan_steps(blocked, "x" * (LONG + 1), process))
        await process.started.wait()
        assert await plan_steps(blocked, SHORT, process)
    assert not long.done()
    process.released.set()
    assert await long


async def test_cancelled_request_is_not_planned() -> None:
    blocked = Blocked("first")
    first = asyncio.create_task(plan_steps(blocked, "first"))
    assert await asyncio.to_thread(blocked.started.wait, 10)
    cancelled = asyncio.create_task(plan_steps(blocked, SHORT))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cancelled, 0.05)
    blocked.released.set()
    await first
    await plan_steps(blocked, "last")
    assert blocked.planned == ["first", "last"]


def test_request_with_too_many_steps_is_read_up_to_the_limit_with_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "HARD_LIMIT", 10)
    reading = Rules(STANDARD).read(plan_request("Describe a.png. Read the text in it aloud. " * 50, ["a.png"]), LITE)
    assert 10 < len(reading.steps) < 20
    assert ["its end was not read" in note.text for note in reading.notes].count(True) == 1


def test_excluded_file_is_found_among_many_file_names() -> None:
    text = "Describe " + " ".join(f"see{number}.png" for number in range(200)) + " and a.png but not b.png."
    reading = Rules(STANDARD).read(plan_request(text, ["a.png", "b.png"]), LITE)
    assert [resource.names[0] for resource in reading.resources] == ["a.png"]
