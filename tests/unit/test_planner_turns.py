"""Who waits for whom where plans are made without an LLM, and how much of a request is read."""

import asyncio
import threading
from typing import cast

import pytest

from services.planner.catalog import Catalog
from services.planner.embedded import rules
from services.planner.embedded.planning import Embedded
from services.planner.embedded.rules import Rules
from services.planner.plan import Catalogue, Decision, Draft
from services.planner.planner import LONG, Planner, Step
from services.planner.process import PlanningProcess
from services.planner.request import Request
from tests.support.plans import LITE, STANDARD, asked

SHORT = "describe it"


class Known:
    async def tasks(self) -> Catalogue:
        return LITE


class Blocked:
    """Makes plans of some words only when it may."""

    def __init__(self, words: str) -> None:
        self._words = words
        self.begun, self.may = threading.Event(), threading.Event()
        self.made: list[str] = []

    def plan(self, request: Request, _: Catalogue) -> Draft:
        if request.text == self._words:
            self.begun.set()
            assert self.may.wait(10)
        self.made.append(request.text)
        return Draft((), (), Decision("embedded", "", 1.0))


class BlockedProcess:
    """Plans long requests only when it may."""

    def __init__(self) -> None:
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def plan(self, _request: Request, _catalogue: Catalogue) -> Draft:
        self.begun.set()
        await self.may.wait()
        return Draft((), (), Decision("embedded", "", 1.0))


async def ask(blocked: Blocked, words: str, process: BlockedProcess | None = None) -> list[Step]:
    told: list[Step] = []

    async def tell(step: Step) -> None:
        told.append(step)

    planner = Planner(
        cast("Catalog", Known()), cast("Embedded", blocked), process=cast("PlanningProcess | None", process)
    )
    await planner.plan(asked(words), tell)
    return told


async def test_nobody_waits_for_the_plan_of_a_long_request() -> None:
    blocked, process = Blocked("another"), BlockedProcess()
    async with asyncio.timeout(10):
        long = asyncio.create_task(ask(blocked, "x" * (LONG + 1), process))
        await process.begun.wait()
        assert await ask(blocked, SHORT, process)
    assert not long.done()
    process.may.set()
    assert await long


async def test_who_leaves_before_its_turn_takes_none() -> None:
    blocked = Blocked("first")
    first = asyncio.create_task(ask(blocked, "first"))
    assert await asyncio.to_thread(blocked.begun.wait, 10)
    left = asyncio.create_task(ask(blocked, SHORT))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(left, 0.05)
    blocked.may.set()
    await first
    await ask(blocked, "last")
    assert blocked.made == ["first", "last"]


def test_more_than_a_plan_can_have_is_not_read_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "HARD_LIMIT", 10)
    drafted = Rules(STANDARD).draft(asked("Describe a.png. Read the text in it aloud. " * 50, ["a.png"]), LITE)
    assert 10 < len(drafted.steps) < 20
    assert ["its end was not read" in note.text for note in drafted.draft.notes].count(True) == 1


def test_a_file_that_is_left_out_is_found_however_many_are_named() -> None:
    named = "Describe " + " ".join(f"see{number}.png" for number in range(200)) + " and a.png but not b.png."
    drafted = Rules(STANDARD).draft(asked(named, ["a.png", "b.png"]), LITE)
    assert [one.names[0] for one in drafted.resources] == ["a.png"]
