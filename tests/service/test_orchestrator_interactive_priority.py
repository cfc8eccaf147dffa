"""Who asks in person waits for no item of a batch, however many of them hang."""

import asyncio

import pytest

from protos.hugginggpt.v1 import artifact_pb2, expert_pb2, plan_pb2, run_pb2
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common import call_context
from services.orchestrator.runs.selection import BATCH_AT_ONCE
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, note, notes, step
from tests.support.orchestrator import OrchestratorUnderTest, ScriptedPeers, echo, run_ended

TASKS = 8
LARGE = plan_pb2.Plan(tasks=[step(number) for number in range(1, TASKS + 1)])


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


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


def expert(peers: ScriptedPeers, held: Held) -> None:
    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await held()
        return await echo(request)

    peers.infer["model"] = infer


async def is_served(orchestrator_client: OrchestratorClient) -> None:
    async with asyncio.timeout(20):
        events = await orchestrator_client.run(plan=PLAN, inputs=note("mine").inputs, mode=run_pb2.RUN_MODE_RESULTS)
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_an_expert_that_items_fill_has_a_place_for_a_person(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    settings = Settings()
    held = Held(min(settings.batch_items, settings.calls_per_expert * 3 // 4))
    expert(orchestrator.peers, held)
    batch = await orchestrator_client.start(notes(settings.batch_items * 2), plan=PINNED)
    await held.full.wait()
    for _ in range(3):
        await is_served(orchestrator_client)
    assert (await orchestrator_client.get(batch.batch_id)).counts.completed == 0
    held.go_on.set()
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == settings.batch_items * 2


async def test_a_choice_for_a_person_stands_behind_none_for_items(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)  # so that the catalogue is known before the selector is held up
    held = Held(BATCH_AT_ONCE)
    batch = await orchestrator_client.start(notes(40), plan=LARGE)
    orchestrator.peers.select = held
    await held.full.wait()
    await is_served(orchestrator_client)
    held.go_on.set()
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 40
