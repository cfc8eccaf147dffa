"""Batches that are cancelled, resumed, or continued by another orchestrator."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.v1 import artifact_pb2, batch_pb2, expert_pb2, plan_pb2, run_pb2
from services.common.database import open_database
from services.common.errors import InvalidRequest, from_rpc
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.journal import Journal
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, note, notes, rpc_error, state, step
from tests.support.orchestrator import END, ScriptedPeers, connected, echo, run_ended
from tests.support.postgres import emptied_database

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    journal = settings.journal
    if request.param == "postgres":
        journal = await emptied_database(request.getfixturevalue("postgres"))
    return settings.model_copy(update={"journal": journal, "lease_seconds": 2.0})


class CountingExpert:
    """An expert that counts its calls by text; calls from the tenth on wait until they are released."""

    def __init__(self, peers: ScriptedPeers) -> None:
        self.calls: Counter[str] = Counter()
        self.failing: set[str] = set()
        """Texts whose calls fail."""
        self.tenth_called = asyncio.Event()
        self.released = asyncio.Event()
        peers.infer["model"] = self._infer

    async def _infer(self, request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        text = request.inputs["text"].text
        self.calls[text] += 1
        if self.calls.total() >= 10:
            self.tenth_called.set()
            await self.released.wait()
        if text in self.failing:
            raise InvalidRequest("the text is damaged", port="text")
        return await echo(request)


@pytest.fixture
def counting_expert(peers: ScriptedPeers) -> CountingExpert:
    return CountingExpert(peers)


async def completed_names(client: OrchestratorClient, batch_id: str) -> set[str]:
    return {item.name for item in await client.items(batch_id, states=[run_pb2.RUN_STATE_COMPLETED])}


# ---------------------------------------------------------------- cancelling and resuming


async def test_cancelled_batch_keeps_its_completed_items(counting_expert: CountingExpert, settings: Settings) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        batch = await client.start(notes(40), max_at_once=4)
        await counting_expert.tenth_called.wait()
        await client.cancel(batch.batch_id)
        batch = await client.ended(batch.batch_id)
        assert state(batch) == "CANCELLED"
        assert batch.counts.running == 0
        assert batch.counts.completed >= 6
        assert batch.counts.cancelled + batch.counts.waiting == 40 - batch.counts.completed


async def test_resumed_batch_runs_only_the_items_that_have_not_completed(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        batch_id = (await client.start(notes(40), max_at_once=4)).batch_id
        await counting_expert.tenth_called.wait()
        await client.cancel(batch_id)
        await client.ended(batch_id)
        completed = await completed_names(client, batch_id)
        await client.cancel(batch_id)
        counting_expert.released.set()
        counting_expert.calls.clear()
        assert state(await client.resume(batch_id)) in {"QUEUED", "RUNNING"}
        batch = await client.ended(batch_id)
        assert state(batch) == "COMPLETED"
        assert batch.counts.completed == 40
        assert not completed & counting_expert.calls.keys()
        assert state(await client.resume(batch_id)) == "COMPLETED", "nothing is left to run"


async def test_failed_items_are_resumed_alone(counting_expert: CountingExpert, settings: Settings) -> None:
    counting_expert.released.set()
    counting_expert.failing = {"note 3", "note 7"}
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        batch = await client.ended((await client.start(notes(9))).batch_id)
        assert state(batch) == "INCOMPLETE"
        assert batch.counts.failed == 2
        assert state(await client.resume(batch.batch_id)) == "INCOMPLETE"
        before = [item.run_id for item in await client.items(batch.batch_id)]
        counting_expert.failing, counting_expert.calls = {"note 7"}, Counter()
        await client.resume(batch.batch_id, failed_only=True)
        batch = await client.ended(batch.batch_id)
        assert batch.counts.completed == 8
        assert batch.counts.failed == 1
        assert counting_expert.calls == {"note 3": 1, "note 7": 1}
        after = [item.run_id for item in await client.items(batch.batch_id)]
        assert [index for index in range(9) if before[index] != after[index]] == [2, 6]


async def test_failed_items_of_an_active_batch_are_not_resumed(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        batch = await client.start(notes(20))
        await counting_expert.tenth_called.wait()
        assert (await rpc_error(client.resume(batch.batch_id, failed_only=True))).reason == "RUNNING"
        assert state(await client.resume(batch.batch_id)) == "RUNNING"
        counting_expert.released.set()
        assert (await client.ended(batch.batch_id)).counts.completed == 20


async def test_batch_is_not_resumed_before_its_cancellation_ends(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client, reasons, resumed = OrchestratorClient(stub), set(), batch_pb2.Batch()
        batch_id = (await client.start(notes(20))).batch_id
        await counting_expert.tenth_called.wait()
        await client.cancel(batch_id)
        while not resumed.batch_id:
            try:
                resumed = await client.resume(batch_id)
            except grpc.aio.AioRpcError as error:
                reasons.add(from_rpc(error).reason)
        assert reasons <= {"RUNNING"}
        counting_expert.released.set()
        assert (await client.ended(batch_id)).counts.completed == 20


# ---------------------------------------------------------------- several orchestrators


async def test_another_orchestrator_continues_the_batch_of_a_stopped_one(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        batch_id = (await OrchestratorClient(stub).start(notes(60), plan=PINNED, max_at_once=5)).batch_id
        await counting_expert.tenth_called.wait()
    counting_expert.released.set()
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        batch = await OrchestratorClient(stub).ended(batch_id)
        assert state(batch) == "COMPLETED"
        assert batch.counts.completed == 60
        assert all(count == 1 for text, count in counting_expert.calls.items() if int(text.split()[1]) <= 5)
        assert counting_expert.calls.total() <= 65, "only active items run again"


async def test_two_orchestrators_execute_each_item_once(counting_expert: CountingExpert, settings: Settings) -> None:
    counting_expert.released.set()
    settings = settings.model_copy(update={"lease_seconds": 30.0})  # a lost lease would repeat calls
    async with (
        serve_orchestrator(settings) as first,
        serve_orchestrator(settings) as second,
        connected(first) as first_stub,
        connected(second) as second_stub,
    ):
        one, other = OrchestratorClient(first_stub), OrchestratorClient(second_stub)
        batches = [await client.start(notes(20)) for client in (one, other, one)]
        for batch in batches:
            watched = await asyncio.gather(*(client.ended(batch.batch_id) for client in (one, other)))
            assert [each.counts.completed for each in watched] == [20, 20]
    assert set(counting_expert.calls.values()) == {3}


async def test_batch_is_cancelled_through_another_orchestrator(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as first, connected(first) as first_stub:
        batch = await OrchestratorClient(first_stub).start(notes(40), max_at_once=10)
        await counting_expert.tenth_called.wait()
        async with serve_orchestrator(settings) as second, connected(second) as second_stub:
            other = OrchestratorClient(second_stub)
            await other.cancel(batch.batch_id)
            assert state(await other.ended(batch.batch_id)) == "CANCELLED"


async def test_batch_is_resumed_and_deleted_through_another_orchestrator(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with (
        serve_orchestrator(settings) as first,
        serve_orchestrator(settings) as second,
        connected(first) as first_stub,
        connected(second) as second_stub,
    ):
        one, other = clients = OrchestratorClient(first_stub), OrchestratorClient(second_stub)
        batch_id = (await one.start(notes(40), max_at_once=4)).batch_id
        await counting_expert.tenth_called.wait()
        for client in clients:
            assert (await rpc_error(client.delete(batch_id))).reason == "RUNNING"
        await other.cancel(batch_id)
        assert state(await one.ended(batch_id)) == "CANCELLED"
        completed = await completed_names(one, batch_id)
        counting_expert.released.set()
        counting_expert.calls.clear()
        await other.resume(batch_id)
        for batch in await asyncio.gather(*(client.ended(batch_id) for client in clients)):
            assert state(batch) == "COMPLETED"
            assert batch.counts.completed == 40
        assert not completed & counting_expert.calls.keys()
        await other.delete(batch_id)
        for client in clients:
            for call in (client.get, client.resume, client.delete):
                assert (await rpc_error(call(batch_id))).reason == "BATCH"


# ---------------------------------------------------------------- cancelling while the batch is planned


def plan_for_ever(peers: ScriptedPeers) -> asyncio.Event:
    """Scripts a plan that never ends; the returned event is set once it is requested."""
    requested = asyncio.Event()

    async def script(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        requested.set()
        await asyncio.Event().wait()
        yield END

    peers.plans.append(script)
    return requested


async def test_batch_cancelled_while_it_is_planned_can_be_planned_later(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers
) -> None:
    planning = plan_for_ever(peers)
    peers.plan(type(END)(task=PLAN.tasks[0]), END)
    counting_expert.released.set()
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        batch_id = (await client.start(notes(3), request="shorten it")).batch_id
        await planning.wait()
        await client.cancel(batch_id)
        batch = await client.ended(batch_id)
        assert state(batch) == "CANCELLED"
        assert batch.counts.waiting == 3
        assert not batch.HasField("failure")
        await client.resume(batch_id)
        assert (await client.ended(batch_id)).counts.completed == 3


async def test_batch_cancelled_while_it_is_planned_leaves_one_command(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning, may_end = plan_for_ever(peers), asyncio.Event()
    append = Journal.append

    def append_end_late(journal: Journal, run_id: str, fence: int, events: Any, *args: Any, **more: Any) -> Any:
        async def append_once_allowed() -> None:
            await may_end.wait()
            await append(journal, run_id, fence, events, *args, **more)

        if events[-1].HasField("run_ended"):
            return asyncio.ensure_future(append_once_allowed())
        return append(journal, run_id, fence, events, *args, **more)

    monkeypatch.setattr(Journal, "append", append_end_late)
    async with (
        open_database(settings.journal, SCHEMA, MIGRATIONS) as database,
        serve_orchestrator(settings) as running,
        connected(running) as stub,
    ):
        client, commands = OrchestratorClient(stub), 0
        batch = await client.start(notes(3), request="shorten it")
        await planning.wait()
        await client.cancel(batch.batch_id)
        while waits_for_cancel_command(batch.batch_id) and commands < 2:
            ((commands,),) = await database.read("SELECT COUNT(*) FROM commands")
        ((commands,),) = await database.read("SELECT COUNT(*) FROM commands")
        assert commands == 1
        may_end.set()
        assert state(await client.ended(batch.batch_id)) == "CANCELLED"


def waits_for_cancel_command(batch_id: str) -> bool:
    """Whether the orchestrator still waits for a command to cancel a batch that is being planned."""
    return any(task.get_name() == f"cancel-{batch_id}" for task in asyncio.all_tasks())


async def test_batch_that_waits_to_be_planned_is_cancelled(counting_expert: CountingExpert, settings: Settings) -> None:
    counting_expert.calls["earlier"] = 10
    async with (
        serve_orchestrator(settings.model_copy(update={"max_runs": 1})) as running,
        connected(running) as stub,
    ):
        client = OrchestratorClient(stub)
        interactive = asyncio.create_task(client.run(plan=PLAN, inputs=note("interactive").inputs))
        await counting_expert.tenth_called.wait()
        batch = await client.start(notes(3), request="shorten it")
        await client.cancel(batch.batch_id)
        assert state(await client.ended(batch.batch_id)) == "CANCELLED"
        assert not interactive.done()
        counting_expert.released.set()
        assert run_ended(await interactive).state == run_pb2.RUN_STATE_COMPLETED


# ---------------------------------------------------------------- tasks that are not offered


async def test_batch_continued_before_its_expert_is_available_waits_for_it(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        batch = await OrchestratorClient(stub).start(notes(30), max_at_once=5)
        await counting_expert.tenth_called.wait()
    peers.unavailable_tasks.add("summarization")
    counting_expert.released.set()
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        assert "no expert offers summarization" in await client.waiting_for(batch.batch_id)
        peers.unavailable_tasks.clear()
        peers.changed.set()
        assert (await client.ended(batch.batch_id)).counts.completed == 30


async def test_batch_that_waits_for_an_expert_does_not_block_others(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.batches.lease_source.MAX_ACTIVE", 1)
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        waiting = await client.start(notes(30), max_at_once=5)
        await counting_expert.tenth_called.wait()
        peers.unavailable_tasks.add("summarization")
        peers.changed.set()
        counting_expert.released.set()
        assert "no expert offers summarization" in await client.waiting_for(waiting.batch_id)
        translation = plan_pb2.Plan(tasks=[step(1, "translation")])
        for batch in [await client.start(notes(3), plan=translation) for _ in range(2)]:
            assert (await client.ended(batch.batch_id)).counts.completed == 3
        peers.unavailable_tasks.clear()
        peers.changed.set()
        assert (await client.ended(waiting.batch_id)).counts.completed == 30


async def test_interactive_run_is_executed_while_batches_hold_all_slots(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    small = settings.model_copy(update={"max_runs": 2, "batch_items": 4})
    async with serve_orchestrator(small) as running, connected(running) as stub:
        client = OrchestratorClient(stub)
        batches = [await client.start(notes(20), 7) for _ in range(3)]
        counting_expert.calls["earlier"] = 10
        await counting_expert.tenth_called.wait()
        counting_expert.released.set()
        events = await client.run(plan=PLAN, inputs=note("interactive").inputs)
        assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
        for batch in batches:
            assert (await client.ended(batch.batch_id)).counts.completed == 20
