"""Requests of the maximum length: each is planned or declined, and the process that plans them can be ended."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import cast

import pytest

from gateway.core.validation import MAX_REQUEST_BYTES
from services.common.errors import Unavailable
from services.planner.catalog import TaskCatalog
from services.planner.embedded.planning import Embedded
from services.planner.plan import Note, NoteKind, Task, Text
from services.planner.planner import LONG, Planner, Step
from services.planner.process import PlanningLimitExceeded, PlanningProcess
from services.planner.task_spec import Catalogue
from tests.support.long_requests import LONG_REQUESTS
from tests.support.plans import STANDARD, plan_request

pytestmark = pytest.mark.slow

EMBEDDED = Embedded(STANDARD)
LONG_REQUEST = "x" * (LONG + 1)


class StandardCatalog:
    async def tasks(self) -> Catalogue:
        return STANDARD


@pytest.fixture
async def planning_process() -> AsyncIterator[PlanningProcess]:
    planning_process = PlanningProcess(cpu_seconds=60)
    yield planning_process
    await planning_process.close()


async def planned(text: str, planning_process: PlanningProcess, files: int = 0) -> list[Step]:
    steps: list[Step] = []

    async def emit(step: Step) -> None:
        steps.append(step)

    names = [f"photo{number}.png" for number in range(files)]
    await Planner(cast("TaskCatalog", StandardCatalog()), EMBEDDED, process=planning_process).plan(
        plan_request(text, names), emit
    )
    return steps


async def test_requests_of_any_text_are_planned_or_declined() -> None:
    planning_process = PlanningProcess()
    try:
        for name, make in LONG_REQUESTS.items():
            text = make(MAX_REQUEST_BYTES)
            assert MAX_REQUEST_BYTES * 0.9 < len(text.encode()) <= MAX_REQUEST_BYTES, name
            async with asyncio.timeout(120):
                steps = await planned(text, planning_process)
            assert any(isinstance(step, Task | Note) for step in steps), name
    finally:
        await planning_process.close()


async def test_long_pasted_text_is_passed_complete(planning_process: PlanningProcess) -> None:
    content = " ".join(f"word{number}" for number in range(100_000))
    steps = await planned(f"Summarize the following text: {content}", planning_process)
    tasks = [step for step in steps if isinstance(step, Task)]
    assert [task.task for task in tasks] == ["summarization"]
    assert tasks[0].arguments["text"] == Text(content)
    assert planning_process.pid is None


async def test_two_long_quotations_are_passed_complete(planning_process: PlanningProcess) -> None:
    first, second = "An apple a day. " * 20_000 + "End.", "Pears are round. " * 20_000 + "End."
    steps = await planned(f'Translate "{first}" into German. Translate "{second}" into French.', planning_process)
    texts = [task.arguments["text"] for task in steps if isinstance(task, Task)]
    assert texts == [Text(first), Text(second)]


async def test_request_with_thousand_files_is_planned_in_separate_process(planning_process: PlanningProcess) -> None:
    steps = await planned("Describe all the pictures.", planning_process, files=1_000)
    assert any(isinstance(step, Task) for step in steps)
    assert planning_process.pid


async def test_plan_over_cpu_limit_is_declined_with_remedy() -> None:
    planning_process = PlanningProcess(cpu_seconds=0.000_001)
    try:
        steps = await planned(LONG_REQUEST, planning_process)
    finally:
        await planning_process.close()
    notes = [step for step in steps if isinstance(step, Note)]
    assert [note.kind for note in notes] == [NoteKind.UNMAPPED]
    assert "too long to plan" in notes[0].text
    assert "Send long texts as files" in notes[0].text


async def test_planning_works_again_after_a_plan_over_the_cpu_limit(planning_process: PlanningProcess) -> None:
    planning_process.cpu_seconds = 0.000_001
    with pytest.raises(PlanningLimitExceeded):
        await planning_process.plan(plan_request(LONG_REQUEST), STANDARD)
    planning_process.cpu_seconds = 60
    assert (await planning_process.plan(plan_request("Describe a.png", ["a.png"]), STANDARD)).tasks


async def test_killed_process_is_reported_and_replaced(planning_process: PlanningProcess) -> None:
    await planning_process.plan(plan_request(LONG_REQUEST), STANDARD)
    assert planning_process.pid
    os.kill(planning_process.pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="status -9"):
        await planning_process.plan(plan_request(LONG_REQUEST), STANDARD)
    assert (await planning_process.plan(plan_request("Describe a.png", ["a.png"]), STANDARD)).tasks


async def test_process_ends_when_idle_and_when_closed() -> None:
    planning_process = PlanningProcess(idle_seconds=0)
    await planning_process.plan(plan_request(LONG_REQUEST), STANDARD)
    await asyncio.sleep(0.01)  # the idle timer of 0 s expires before this one
    assert planning_process.pid is None
    await planning_process.plan(plan_request(LONG_REQUEST), STANDARD)
    await planning_process.close()
    assert planning_process.pid is None


async def test_cancelled_plan_ends_its_process(planning_process: PlanningProcess) -> None:
    await planning_process.plan(plan_request(LONG_REQUEST), STANDARD)
    planning = asyncio.create_task(planning_process.plan(plan_request(LONG_REQUEST), STANDARD))
    await asyncio.sleep(0)  # so that it has started
    planning.cancel()
    await asyncio.wait([planning])
    assert planning.cancelled()
    assert planning_process.pid is None
