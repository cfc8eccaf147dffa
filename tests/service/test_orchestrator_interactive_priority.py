"""Who asks in person waits for no item of a batch, however many of them hang."""

import asyncio

import pytest

from protos.hugginggpt.v1 import artifact_pb2, expert_pb2, plan_pb2, run_pb2
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common import call_context
from services.orchestrator.runs.selection import BACKGROUND_AT_ONCE
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, Asking, note, notes, step
from tests.support.orchestrator import Cast, House, echo, ended

TASKS = 8
LARGE = plan_pb2.Plan(tasks=[step(number) for number in range(1, TASKS + 1)])


@pytest.fixture
def asking(house: House) -> Asking:
    return Asking(house.stub)


class Held:
    """Holds up whatever is for items of batches, from a number of them on."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._held = 0
        self.full = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self) -> None:
        if call_context.current().priority == PRIORITY_BATCH:
            self._held += 1
            if self._held == self._enough:
                self.full.set()
            await self.go_on.wait()


def expert(cast: Cast, held: Held) -> None:
    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await held()
        return await echo(request)

    cast.infer["model"] = infer


async def is_served(asking: Asking) -> None:
    async with asyncio.timeout(20):
        events = await asking.run(plan=PLAN, inputs=note("mine").inputs, mode=run_pb2.RUN_MODE_RESULTS)
    assert ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_an_expert_that_items_fill_has_a_place_for_a_person(house: House, asking: Asking) -> None:
    settings = Settings()
    held = Held(min(settings.batch_items, settings.calls_per_expert * 3 // 4))
    expert(house.cast, held)
    batch = await asking.start(notes(settings.batch_items * 2), plan=PINNED)
    await held.full.wait()
    for _ in range(3):
        await is_served(asking)
    assert (await asking.get(batch.batch_id)).counts.completed == 0
    held.go_on.set()
    assert (await asking.ended(batch.batch_id)).counts.completed == settings.batch_items * 2


async def test_a_choice_for_a_person_stands_behind_none_for_items(house: House, asking: Asking) -> None:
    await asking.save(plan=PLAN)  # so that the catalogue is known before the selector is held up
    held = Held(BACKGROUND_AT_ONCE)
    batch = await asking.start(notes(40), plan=LARGE)
    house.cast.select = held
    await held.full.wait()
    await is_served(asking)
    held.go_on.set()
    assert (await asking.ended(batch.batch_id)).counts.completed == 40
