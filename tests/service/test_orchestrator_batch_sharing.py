"""How tenants share what an orchestrator has for batches, however long the items of one of them take."""

import asyncio

import pytest

from protos.hugginggpt.v1 import artifact_pb2, expert_pb2
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, OrchestratorClient, note, notes
from tests.support.orchestrator import ScriptedPeers, connected, echo
from tests.support.postgres import emptied_database

PLACES = 4


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    journal = settings.journal
    if request.param == "postgres":
        journal = await emptied_database(request.getfixturevalue("postgres"))
    return settings.model_copy(update={"journal": journal, "batch_items": PLACES})


class Hanging:
    """An expert that does not end with notes that hang, until it may."""

    def __init__(self, peers: ScriptedPeers, enough: int) -> None:
        self._enough = enough
        self.now = self.most = 0
        self.full, self.go_on = asyncio.Event(), asyncio.Event()
        peers.infer["model"] = self._infer

    async def _infer(self, request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text.startswith("hang"):
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self._enough:
                self.full.set()
            await self.go_on.wait()
            self.now -= 1
        return await echo(request)


async def test_a_tenant_whose_items_hang_stops_no_other(
    settings: Settings, peers: ScriptedPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.batches.leases.MAX_ACTIVE", 2)
    expert = Hanging(peers, PLACES)
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        many, few = OrchestratorClient(stub, "many"), OrchestratorClient(stub, "few")
        stuck = [await many.start([note(f"hang {n} {m}") for m in range(PLACES)], plan=PINNED) for n in range(3)]
        await expert.full.wait()
        batch = await few.start(notes(5), plan=PINNED)
        assert (await few.ended(batch.batch_id)).counts.completed == 5
        assert expert.most == PLACES
        expert.go_on.set()
        for each in stuck:
            assert (await many.ended(each.batch_id)).counts.completed == PLACES


async def test_all_batches_of_a_key_have_no_more_items_at_once_than_it_may(
    settings: Settings, peers: ScriptedPeers
) -> None:
    expert = Hanging(peers, 2)
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub, key_id="key", items_at_once=2)
        batches = [await asking.start([note(f"hang {n} {m}") for m in range(3)], plan=PINNED) for n in range(3)]
        await expert.full.wait()
        other = await OrchestratorClient(stub).start(notes(3), plan=PINNED)
        assert (await OrchestratorClient(stub).ended(other.batch_id)).counts.completed == 3
        expert.go_on.set()
        for batch in batches:
            assert (await asking.ended(batch.batch_id)).counts.completed == 3
        assert expert.most == 2
