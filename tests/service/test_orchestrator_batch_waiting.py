"""A waiting batch reports the reason in `waiting_for` until it continues."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1.selector_pb2 import Endpoint
from protos.hugginggpt.v1 import artifact_pb2, batch_pb2, expert_pb2
from services.common.errors import Unavailable, from_rpc
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.batches import runner, slots
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, note, notes, state
from tests.support.orchestrator import END, ScriptedPeers, connected, echo
from tests.support.postgres import emptied_database

pytestmark = pytest.mark.timeout(60)

CLOSED = "127.0.0.1:1"
"""An address where no server listens."""


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied_database(request.getfixturevalue("postgres"))})


@pytest.fixture(autouse=True)
def _frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "REPORT_SECONDS", 0.05)


class GatedExpert:
    """An expert whose calls wait until they are released, by the first word of their text."""

    def __init__(self, peers: ScriptedPeers) -> None:
        self._peers = peers
        self._gates: dict[str, asyncio.Event] = {}
        self._called: dict[str, asyncio.Event] = {}
        peers.infer["model"] = self._infer

    def hold(self, word: str) -> None:
        """Lets calls wait from now on."""
        self._gates[word], self._called[word] = asyncio.Event(), asyncio.Event()

    async def wait_called(self, word: str) -> None:
        await self._called[word].wait()

    def release(self, word: str) -> None:
        self._gates[word].set()

    async def _infer(self, request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        word = request.inputs["text"].text.split()[0]
        if word in self._gates:
            self._called[word].set()
            await self._gates[word].wait()
        return await echo(request)


@pytest.fixture
def expert(peers: ScriptedPeers) -> GatedExpert:
    return GatedExpert(peers)


@contextlib.asynccontextmanager
async def client(settings: Settings, **caller: Any) -> AsyncIterator[OrchestratorClient]:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        yield OrchestratorClient(stub, **caller)


async def until_it_waits_for(client: OrchestratorClient, batch: batch_pb2.Batch, reason: str) -> None:
    """Reads a batch until it states a reason that contains a text."""
    async with asyncio.timeout(30):
        while reason not in (await client.get(batch.batch_id)).waiting_for:
            pass


async def until_it_waits_no_more(client: OrchestratorClient, batch: batch_pb2.Batch) -> batch_pb2.Batch:
    """Reads a batch until it no longer waits, and returns it."""
    async with asyncio.timeout(30):
        while (read := await client.get(batch.batch_id)).waiting_for:
            pass
    return read


async def until_task_is_not_offered(client: OrchestratorClient) -> None:
    """Waits until the orchestrator knows that the task of PINNED is no longer offered."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.save(plan=PINNED)
            except grpc.aio.AioRpcError as error:
                if from_rpc(error).reason == "TASK_UNAVAILABLE":
                    return
                raise


async def test_batch_waits_for_slots_that_other_batches_hold(expert: GatedExpert, settings: Settings) -> None:
    expert.hold("first")
    expert.hold("second")
    async with client(settings.model_copy(update={"batch_items": 1})) as orchestrator_client:
        await orchestrator_client.start([note("first")], plan=PINNED)
        await expert.wait_called("first")
        batch = await orchestrator_client.start([note("second")], plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, slots.SLOTS_TAKEN)
        expert.release("first")
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running == 1
        expert.release("second")


async def test_batch_waits_for_items_of_its_api_key(expert: GatedExpert, settings: Settings) -> None:
    expert.hold("first")
    expert.hold("second")
    async with client(settings, key_id="key", items_at_once=1) as orchestrator_client:
        await orchestrator_client.start([note("first")], plan=PINNED)
        await expert.wait_called("first")
        batch = await orchestrator_client.start([note("second")], plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, slots.KEY_LIMIT)
        expert.release("first")
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running == 1
        expert.release("second")


async def test_batch_whose_own_items_hold_all_slots_does_not_wait(expert: GatedExpert, settings: Settings) -> None:
    expert.hold("note")
    async with client(settings.model_copy(update={"batch_items": 2})) as orchestrator_client:
        batch = await orchestrator_client.start(notes(3), plan=PINNED)
        await expert.wait_called("note")
        await asyncio.sleep(10 * runner.REPORT_SECONDS)
        assert (await orchestrator_client.get(batch.batch_id)).waiting_for == ""
        expert.release("note")


async def test_batch_waits_for_memory(expert: GatedExpert, settings: Settings) -> None:
    expert.hold("first")
    expert.hold("second")
    async with client(settings.model_copy(update={"max_bytes": 1000})) as orchestrator_client:
        await orchestrator_client.start([note("first " + "x" * 1000)], plan=PINNED)
        await expert.wait_called("first")
        batch = await orchestrator_client.start([note("second")], plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, slots.MEMORY_LOW)
        expert.release("first")
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running == 1
        expert.release("second")


async def test_batch_waits_for_an_overloaded_orchestrator(
    expert: GatedExpert, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "CALM_SECONDS", 0.0)  # no round of the event loop counts as short
    monkeypatch.setattr(slots, "CALM_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(slots, "OVERLOAD_SECONDS", 0.1)
    expert.hold("last")
    async with client(settings) as orchestrator_client:
        batch = await orchestrator_client.start([*notes(20), note("last")], plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, slots.OVERLOADED)
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running > 0
        expert.release("last")
        assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 21


async def test_batch_waits_for_interactive_runs(expert: GatedExpert, settings: Settings) -> None:
    expert.hold("interactive")
    expert.hold("last")
    async with client(settings) as orchestrator_client:
        interactive = asyncio.create_task(orchestrator_client.run(plan=PLAN, inputs=note("interactive").inputs))
        await expert.wait_called("interactive")
        batch = await orchestrator_client.start([*notes(200), *[note("last")] * 50], plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, slots.INTERACTIVE)
        expert.release("interactive")
        await interactive
        await expert.wait_called("last")
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running > 0
        expert.release("last")


async def test_batch_waits_for_a_dormant_expert(
    expert: GatedExpert, settings: Settings, peers: ScriptedPeers, peer_addresses: dict[str, str]
) -> None:
    expert.hold("note")
    peers.candidates[0].candidate.dormant = True
    del peers.candidates[0].endpoints[:]
    async with client(settings) as orchestrator_client:
        batch = await orchestrator_client.start(notes(3), plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, "fake is dormant")
        peers.candidates[0].endpoints.append(Endpoint(address=peer_addresses["expert"]))
        peers.changed.set()
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running == 3
        expert.release("note")


async def test_wait_for_a_dormant_expert_shares_the_catalogue_stream_of_the_cache(
    settings: Settings, peers: ScriptedPeers
) -> None:
    peers.candidates[0].candidate.dormant = True
    del peers.candidates[0].endpoints[:]
    async with client(settings) as orchestrator_client:
        batch = await orchestrator_client.start(notes(3), plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, "fake is dormant")
        assert peers.catalogue_watches == 1


async def test_batch_waits_for_an_unavailable_expert(
    expert: GatedExpert, settings: Settings, peers: ScriptedPeers, peer_addresses: dict[str, str]
) -> None:
    expert.hold("note")
    peers.candidates[0].endpoints[0].address = CLOSED
    async with client(settings) as orchestrator_client:
        batch = await orchestrator_client.start(notes(3), plan=PINNED)
        await until_it_waits_for(orchestrator_client, batch, "expert fake")
        peers.candidates[0].endpoints[0].address = peer_addresses["expert"]
        peers.changed.set()
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running == 3
        expert.release("note")


async def test_batch_waits_for_an_unavailable_selector(
    expert: GatedExpert, settings: Settings, peers: ScriptedPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise Unavailable("the selector is starting")

    monkeypatch.setattr("services.orchestrator.runs.selector_client.SHARED_SECONDS", 0.0)  # no earlier one is used
    expert.hold("note")
    async with client(settings) as orchestrator_client:
        batch = await orchestrator_client.start(notes(3), max_at_once=1)
        await expert.wait_called("note")
        peers.select = fail
        expert.release("note")
        expert.hold("note")
        await until_it_waits_for(orchestrator_client, batch, "select")  # for the check of the tasks, or for an item
        peers.select = None
        peers.changed.set()
        await expert.wait_called("note")
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running == 1
        expert.release("note")


async def test_batch_waits_for_a_task_that_is_not_offered(
    expert: GatedExpert, settings: Settings, peers: ScriptedPeers
) -> None:
    expert.hold("note")
    async with client(settings) as orchestrator_client:
        batch = await orchestrator_client.start(notes(6), plan=PINNED, max_at_once=2)
        await expert.wait_called("note")
        peers.unavailable_tasks.add("summarization")
        peers.changed.set()
        await until_task_is_not_offered(orchestrator_client)
        expert.release("note")
        expert.hold("note")
        await until_it_waits_for(orchestrator_client, batch, "no expert offers summarization; add an expert")
        peers.unavailable_tasks.clear()
        peers.changed.set()
        await expert.wait_called("note")
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running > 0
        expert.release("note")
        batch = await orchestrator_client.ended(batch.batch_id)
    assert batch.counts.completed == 6
    assert batch.waiting_for == ""


async def test_batch_waits_for_a_slot_to_be_planned(
    expert: GatedExpert, settings: Settings, peers: ScriptedPeers
) -> None:
    expert.hold("interactive")
    expert.hold("note")
    peers.plan(type(END)(task=PLAN.tasks[0]), END)
    async with client(settings.model_copy(update={"max_runs": 1})) as orchestrator_client:
        interactive = asyncio.create_task(orchestrator_client.run(plan=PLAN, inputs=note("interactive").inputs))
        await expert.wait_called("interactive")
        batch = await orchestrator_client.start(notes(3), request="shorten the note")
        await until_it_waits_for(orchestrator_client, batch, "the run that plans the batch is not accepted yet")
        expert.release("interactive")
        await interactive
        assert (await until_it_waits_no_more(orchestrator_client, batch)).waiting_for == ""
        expert.release("note")
        assert state(await orchestrator_client.ended(batch.batch_id)) == "COMPLETED"


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_batch_waits_for_a_journal_that_takes_no_writes(
    expert: GatedExpert, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.runs.run_log.BEHIND_SECONDS", 0.1)
    expert.hold("note")
    async with client(settings) as orchestrator_client:
        batch = await orchestrator_client.start(notes(3), plan=PINNED, max_at_once=1)
        await expert.wait_called("note")
        with contextlib.closing(sqlite3.connect(settings.journal, isolation_level=None)) as other_process:
            other_process.execute("BEGIN IMMEDIATE")
            expert.release("note")
            await until_it_waits_for(orchestrator_client, batch, runner.JOURNAL_SLOW)
            expert.hold("note")
        await expert.wait_called("note")
        assert (await until_it_waits_no_more(orchestrator_client, batch)).counts.running == 1
        expert.release("note")
        assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 3


async def test_another_orchestrator_states_for_what_a_batch_waits(
    expert: GatedExpert, settings: Settings, peers: ScriptedPeers, peer_addresses: dict[str, str]
) -> None:
    peers.candidates[0].candidate.dormant = True
    del peers.candidates[0].endpoints[:]
    async with client(settings) as owner, client(settings) as other:
        batch = await owner.start(notes(3), plan=PINNED)
        await until_it_waits_for(owner, batch, "fake is dormant")
        await until_it_waits_for(other, batch, "fake is dormant")
        peers.candidates[0].endpoints.append(Endpoint(address=peer_addresses["expert"]))
        peers.changed.set()
        assert (await other.ended(batch.batch_id)).counts.completed == 3
