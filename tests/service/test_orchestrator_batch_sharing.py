"""Slots for batch items are shared between tenants and API keys, however long the items of one of them take."""

import asyncio

import pytest

from protos.hugginggpt.v1 import artifact_pb2, expert_pb2
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, OrchestratorClient, note, notes
from tests.support.orchestrator import ScriptedPeers, connected, echo
from tests.support.postgres import emptied_database

SLOTS = 4


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    journal = settings.journal
    if request.param == "postgres":
        journal = await emptied_database(request.getfixturevalue("postgres"))
    return settings.model_copy(update={"journal": journal, "batch_items": SLOTS})


class HangingExpert:
    """An expert whose calls with a text that begins with "hang" wait until they are released.

    Args:
        peers: whose expert it becomes.
        expected: number of waiting calls that sets `full`.
    """

    def __init__(self, peers: ScriptedPeers, expected: int) -> None:
        self._expected = expected
        self.waiting = self.most_waiting = 0
        self.full, self.released = asyncio.Event(), asyncio.Event()
        peers.infer["model"] = self._infer

    async def _infer(self, request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text.startswith("hang"):
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            if self.waiting >= self._expected:
                self.full.set()
            await self.released.wait()
            self.waiting -= 1
        return await echo(request)


async def test_tenant_whose_items_hang_does_not_block_others(
    settings: Settings, peers: ScriptedPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.batches.lease_source.MAX_ACTIVE", 2)
    expert = HangingExpert(peers, SLOTS)
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        large, small = OrchestratorClient(stub, "large"), OrchestratorClient(stub, "small")
        hanging = [await large.start([note(f"hang {n} {m}") for m in range(SLOTS)], plan=PINNED) for n in range(3)]
        await expert.full.wait()
        batch = await small.start(notes(5), plan=PINNED)
        assert (await small.ended(batch.batch_id)).counts.completed == 5
        assert expert.most_waiting == SLOTS
        expert.released.set()
        for each in hanging:
            assert (await large.ended(each.batch_id)).counts.completed == SLOTS


async def test_batches_of_an_api_key_share_its_limit_of_items(settings: Settings, peers: ScriptedPeers) -> None:
    expert = HangingExpert(peers, 2)
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        limited = OrchestratorClient(stub, key_id="key", items_at_once=2)
        hanging = [await limited.start([note(f"hang {n} {m}") for m in range(3)], plan=PINNED) for n in range(3)]
        await expert.full.wait()
        other = OrchestratorClient(stub)
        batch = await other.start(notes(3), plan=PINNED)
        assert (await other.ended(batch.batch_id)).counts.completed == 3
        expert.released.set()
        for each in hanging:
            assert (await limited.ended(each.batch_id)).counts.completed == 3
        assert expert.most_waiting == 2
