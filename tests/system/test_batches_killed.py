"""A batch completes with the usual results if its orchestrator is killed or paused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.common.errors import InvalidRequest
from tests.support import postgres as servers
from tests.support.batches import PINNED, OrchestratorClient, notes, state
from tests.support.orchestrator import ScriptedPeers
from tests.system.conftest import eventually
from tests.system.replicas import Replica, replicas
from tests.system.test_takeover import pause

pytestmark = pytest.mark.slow

AT_ONCE = 8


@pytest.fixture(params=["sqlite", "postgresql"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            yield str(tmp_path / "journal.sqlite")
        else:
            yield await stack.enter_async_context(servers.new_database(request.getfixturevalue("postgres")))


class Expert:
    """Counts its calls, and fails for every seventeenth note."""

    def __init__(self, peers: ScriptedPeers) -> None:
        self.calls: Counter[int] = Counter()
        self.half_done = asyncio.Event()
        peers.infer["model"] = self._infer

    async def _infer(self, request: InferRequest) -> dict[str, Value]:
        number = int(request.inputs["text"].text.split()[1])
        self.calls[number] += 1
        if self.calls.total() == 100:
            self.half_done.set()
        if number % 17 == 0:
            raise InvalidRequest("it is broken", port="text")
        return {"text": Value(text=f"short {number}")}


async def test_batch_of_killed_orchestrator_is_completed_by_the_other(
    peer_addresses: dict[str, str], peers: ScriptedPeers, journal: str, tmp_path: Path
) -> None:
    expert = Expert(peers)
    async with replicas(tmp_path, journal, peer_addresses, lease_seconds=2.0) as started:
        batch = await OrchestratorClient(started[0].stub).start(notes(200), plan=PINNED, max_at_once=AT_ONCE)
        await expert.half_done.wait()
        owner, other = _owner_first(started)
        await owner.process.kill()
        await _assert_results(OrchestratorClient(other.stub), batch.batch_id, expert)


async def test_batch_resumes_after_the_only_orchestrator_restarts(
    peer_addresses: dict[str, str], peers: ScriptedPeers, journal: str, tmp_path: Path
) -> None:
    expert = Expert(peers)
    async with replicas(tmp_path, journal, peer_addresses, lease_seconds=2.0, count=1) as (only,):
        batch = await OrchestratorClient(only.stub).start(notes(200), plan=PINNED, max_at_once=AT_ONCE)
        await expert.half_done.wait()
        await only.process.kill()
        await only.process.start()
        await _assert_results(OrchestratorClient(only.stub), batch.batch_id, expert)


async def test_batch_owner_paused_past_its_lease_starts_no_items(
    peer_addresses: dict[str, str], peers: ScriptedPeers, journal: str, tmp_path: Path
) -> None:
    expert = Expert(peers)
    async with replicas(tmp_path, journal, peer_addresses, lease_seconds=2.0) as started:
        batch = await OrchestratorClient(started[0].stub).start(notes(200), plan=PINNED, max_at_once=AT_ONCE)
        await expert.half_done.wait()
        owner, other = _owner_first(started)
        await pause(owner, journal)
        await _assert_results(OrchestratorClient(other.stub), batch.batch_id, expert)
        owner.process.resume()
        await asyncio.to_thread(eventually, lambda: _was_lost(owner.process.log.read_text()))
        await _assert_results(OrchestratorClient(owner.stub), batch.batch_id, expert)


def _owner_first(started: Sequence[Replica]) -> Sequence[Replica]:
    """Replicas, the batch's owner first; it may be another than the one that accepted the batch."""
    return sorted(started, key=lambda replica: "batch claimed" not in replica.process.log.read_text())


def _was_lost(log: str) -> bool:
    """Whether an owner has released its batch; PostgreSQL also ends the connection of a transaction that was paused."""
    reasons = ("lease lost", "released: leases not renewed", "released: dependency unavailable")
    return any("batch" in line and any(reason in line for reason in reasons) for line in log.splitlines())


async def _assert_results(client: OrchestratorClient, batch_id: str, expert: Expert) -> None:
    """Every item has its usual result, and only items that were active were repeated."""
    batch = await client.ended(batch_id)
    assert state(batch) == "INCOMPLETE"
    assert batch.counts.completed == 189
    assert batch.counts.failed == 11
    for item in await client.items(batch_id):
        if item.index % 17:
            assert item.outputs["text"].text == f"short {item.index}"
        else:
            assert item.failure.message == "it is broken"
    repeated = [number for number, count in expert.calls.items() if count > 1]
    assert len(repeated) <= AT_ONCE
    assert len(expert.calls) == 200
