"""Interactive runs do not wait for batch items, however many of these hang."""

import asyncio

import pytest

from protos.hugginggpt.v1 import artifact_pb2, expert_pb2, plan_pb2, run_pb2
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from services.common import call_context
from services.orchestrator.runs.selector_client import BATCH_AT_ONCE
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, note, notes, step
from tests.support.orchestrator import OrchestratorUnderTest, ScriptedPeers, echo, run_ended

TASKS = 8
LARGE = plan_pb2.Plan(tasks=[step(number) for number in range(1, TASKS + 1)])


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


class BatchGate:
    """Lets calls for batch items wait until they are released.

    Args:
        expected: number of waiting calls that sets `full`.
    """

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._waiting = 0
        self.full = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self) -> None:
        if call_context.current().priority == PRIORITY_BATCH:
            self._waiting += 1
            if self._waiting == self._expected:
                self.full.set()
            await self.released.wait()


def script_expert(peers: ScriptedPeers, gate: BatchGate) -> None:
    """Lets the expert's calls pass a gate."""

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await gate()
        return await echo(request)

    peers.infer["model"] = infer


async def run_interactively(orchestrator_client: OrchestratorClient) -> None:
    """Runs a task interactively, which must complete within 20 s."""
    async with asyncio.timeout(20):
        events = await orchestrator_client.run(
            plan=PLAN, inputs=note("interactive").inputs, mode=run_pb2.RUN_MODE_RESULTS
        )
    assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED


async def test_interactive_run_is_served_by_an_expert_that_batch_items_fill(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    settings = Settings()
    gate = BatchGate(min(settings.batch_items, settings.calls_per_expert * 3 // 4))
    script_expert(orchestrator.peers, gate)
    batch = await orchestrator_client.start(notes(settings.batch_items * 2), plan=PINNED)
    await gate.full.wait()
    for _ in range(3):
        await run_interactively(orchestrator_client)
    assert (await orchestrator_client.get(batch.batch_id)).counts.completed == 0
    gate.released.set()
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == settings.batch_items * 2


async def test_selection_for_an_interactive_run_does_not_wait_for_those_of_items(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)  # fills the cache of candidates before selections have to wait
    gate = BatchGate(BATCH_AT_ONCE)
    batch = await orchestrator_client.start(notes(40), plan=LARGE)
    orchestrator.peers.select = gate
    await gate.full.wait()
    await run_interactively(orchestrator_client)
    gate.released.set()
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 40
