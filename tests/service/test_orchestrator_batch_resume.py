"""Batches that are stopped, taken up again, repeated in part, or must wait."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.v1 import artifact_pb2, batch_pb2, expert_pb2, plan_pb2, run_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from services.common.database import open_database
from services.common.errors import InvalidRequest, from_rpc
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.batches import slots
from services.orchestrator.journal import Journal
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, note, notes, state, step
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
    """An expert that counts what it is asked, and can be held up or fail."""

    def __init__(self, peers: ScriptedPeers) -> None:
        self.asked: Counter[str] = Counter()
        self.broken: set[str] = set()
        self.some = asyncio.Event()
        self.go_on = asyncio.Event()
        peers.infer["model"] = self._infer

    async def _infer(self, request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        text = request.inputs["text"].text
        self.asked[text] += 1
        if self.asked.total() >= 10:
            self.some.set()
            await self.go_on.wait()
        if text in self.broken:
            raise InvalidRequest("it is broken", port="text")
        return await echo(request)


@pytest.fixture
def counting_expert(peers: ScriptedPeers) -> CountingExpert:
    return CountingExpert(peers)


async def test_a_cancelled_batch_keeps_what_has_ended_and_goes_on_when_asked(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        batch = await asking.start(notes(40), max_at_once=4)
        await counting_expert.some.wait()
        await asking.cancel(batch.batch_id)
        batch = await asking.ended(batch.batch_id)
        assert (state(batch), batch.counts.running) == ("CANCELLED", 0)
        assert batch.counts.completed >= 6
        assert batch.counts.cancelled + batch.counts.waiting == 40 - batch.counts.completed
        done = {item.name for item in await asking.items(batch.batch_id, states=[run_pb2.RUN_STATE_COMPLETED])}
        await asking.cancel(batch.batch_id)
        counting_expert.go_on.set()
        counting_expert.asked.clear()
        assert state(await asking.resume(batch.batch_id)) in {"QUEUED", "RUNNING"}
        batch = await asking.ended(batch.batch_id)
        assert (state(batch), batch.counts.completed) == ("COMPLETED", 40)
        assert not done & counting_expert.asked.keys()
        assert state(await asking.resume(batch.batch_id)) == "COMPLETED"


async def test_the_failed_ones_alone_run_again(counting_expert: CountingExpert, settings: Settings) -> None:
    counting_expert.go_on.set()
    counting_expert.broken = {"note 3", "note 7"}
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        batch = await asking.ended((await asking.start(notes(9))).batch_id)
        assert (state(batch), batch.counts.failed) == ("INCOMPLETE", 2)
        assert state(await asking.resume(batch.batch_id)) == "INCOMPLETE"
        before = [item.run_id for item in await asking.items(batch.batch_id)]
        counting_expert.broken, counting_expert.asked = {"note 7"}, Counter()
        await asking.resume(batch.batch_id, failed_only=True)
        batch = await asking.ended(batch.batch_id)
        assert (batch.counts.completed, batch.counts.failed) == (8, 1)
        assert counting_expert.asked == {"note 3": 1, "note 7": 1}
        after = [item.run_id for item in await asking.items(batch.batch_id)]
        assert [index for index in range(9) if before[index] != after[index]] == [2, 6]


async def test_the_failed_ones_wait_for_the_end_of_their_batch(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        batch = await asking.start(notes(20))
        await counting_expert.some.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asking.resume(batch.batch_id, failed_only=True)
        assert from_rpc(caught.value).reason == "RUNNING"
        assert state(await asking.resume(batch.batch_id)) == "RUNNING"
        counting_expert.go_on.set()
        assert (await asking.ended(batch.batch_id)).counts.completed == 20


async def test_who_resumes_a_batch_that_is_being_cancelled_is_told_to_wait(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking, reasons, resumed = OrchestratorClient(stub), set(), batch_pb2.Batch()
        batch_id = (await asking.start(notes(20))).batch_id
        await counting_expert.some.wait()
        await asking.cancel(batch_id)
        while not resumed.batch_id:
            try:
                resumed = await asking.resume(batch_id)
            except grpc.aio.AioRpcError as error:
                reasons.add(from_rpc(error).reason)
        assert reasons <= {"RUNNING"}
        counting_expert.go_on.set()
        assert (await asking.ended(batch_id)).counts.completed == 20


async def test_another_orchestrator_goes_on_where_one_stops(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        batch = await OrchestratorClient(stub).start(notes(60), plan=PINNED, max_at_once=5)
        await counting_expert.some.wait()
    counting_expert.go_on.set()
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        ended_batch = await asking.ended(batch.batch_id)
        assert (state(ended_batch), ended_batch.counts.completed) == ("COMPLETED", 60)
        assert all(count == 1 for text, count in counting_expert.asked.items() if int(text.split()[1]) <= 5)
        assert counting_expert.asked.total() <= 65, "only what was under way is done again"


async def test_of_two_orchestrators_one_drives_and_both_tell(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    counting_expert.go_on.set()
    settings = settings.model_copy(update={"lease_seconds": 30.0})  # a lost lease would repeat calls
    async with (
        serve_orchestrator(settings) as first,
        serve_orchestrator(settings) as second,
        connected(first) as one,
        connected(second) as other,
    ):
        batches = [await OrchestratorClient(stub).start(notes(20)) for stub in (one, other, one)]
        for batch in batches:
            told = await asyncio.gather(*(OrchestratorClient(stub).ended(batch.batch_id) for stub in (one, other)))
            assert [each.counts.completed for each in told] == [20, 20]
    assert set(counting_expert.asked.values()) == {3}


async def test_a_batch_at_another_orchestrator_is_cancelled(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with serve_orchestrator(settings) as first, connected(first) as one:
        batch = await OrchestratorClient(one).start(notes(40), max_at_once=10)
        await counting_expert.some.wait()
        async with serve_orchestrator(settings) as second, connected(second) as other:
            await OrchestratorClient(other).cancel(batch.batch_id)
            assert state(await OrchestratorClient(other).ended(batch.batch_id)) == "CANCELLED"


async def test_a_batch_is_resumed_and_removed_at_another_orchestrator(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    async with (
        serve_orchestrator(settings) as first,
        serve_orchestrator(settings) as second,
        connected(first) as one,
        connected(second) as other,
    ):
        batch_id = (await OrchestratorClient(one).start(notes(40), max_at_once=4)).batch_id
        await counting_expert.some.wait()
        removal = pb.DeleteBatchRequest(batch_id=batch_id)
        for stub in (one, other):
            assert await refused(stub.DeleteBatch(removal, **OrchestratorClient(stub).call_options)) == "RUNNING"
        await OrchestratorClient(other).cancel(batch_id)
        batch = await OrchestratorClient(one).ended(batch_id)
        assert state(batch) == "CANCELLED"
        done = {
            item.name for item in await OrchestratorClient(one).items(batch_id, states=[run_pb2.RUN_STATE_COMPLETED])
        }
        counting_expert.go_on.set()
        counting_expert.asked.clear()
        await OrchestratorClient(other).resume(batch_id)
        told = await asyncio.gather(*(OrchestratorClient(stub).ended(batch_id) for stub in (one, other)))
        assert [(state(each), each.counts.completed) for each in told] == [("COMPLETED", 40)] * 2
        assert not done & counting_expert.asked.keys()
        await other.DeleteBatch(removal, **OrchestratorClient(other).call_options)
        for stub in (one, other):
            assert await refused(OrchestratorClient(stub).get(batch_id)) == "BATCH"
            assert await refused(OrchestratorClient(stub).resume(batch_id)) == "BATCH"
            assert await refused(stub.DeleteBatch(removal, **OrchestratorClient(stub).call_options)) == "BATCH"


async def refused(call: Awaitable[Any]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value).reason


async def test_a_batch_that_is_cancelled_while_it_is_planned_has_no_plan_and_may_have_one_later(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers
) -> None:
    planning = asyncio.Event()

    async def pondering(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        planning.set()
        await asyncio.Event().wait()
        yield END

    peers.plans.append(pondering)
    peers.plan(type(END)(task=PLAN.tasks[0]), END)
    counting_expert.go_on.set()
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        batch = await asking.start(notes(3), request="shorten it")
        await planning.wait()
        await asking.cancel(batch.batch_id)
        batch = await asking.ended(batch.batch_id)
        assert (state(batch), batch.counts.waiting, batch.HasField("failure")) == ("CANCELLED", 3, False)
        await asking.resume(batch.batch_id)
        assert (await asking.ended(batch.batch_id)).counts.completed == 3


async def test_batch_cancelled_while_it_is_planned_leaves_one_command(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning, ending = asyncio.Event(), asyncio.Event()

    async def pondering(_: planner_pb2.PlanRequest) -> AsyncIterator[planner_pb2.PlanEvent]:
        planning.set()
        await asyncio.Event().wait()
        yield END

    def append(journal: Journal, run_id: str, fence: int, events: Any, *args: Any, **more: Any) -> Any:
        async def when_it_may_end() -> None:
            await ending.wait()
            await stored(journal, run_id, fence, events, *args, **more)

        if events[-1].HasField("run_ended"):
            return asyncio.ensure_future(when_it_may_end())
        return stored(journal, run_id, fence, events, *args, **more)

    stored = Journal.append
    monkeypatch.setattr(Journal, "append", append)
    peers.plans.append(pondering)
    async with (
        open_database(settings.journal, SCHEMA, MIGRATIONS) as database,
        serve_orchestrator(settings) as running,
        connected(running) as stub,
    ):
        asking, commands = OrchestratorClient(stub), 0
        batch = await asking.start(notes(3), request="shorten it")
        await planning.wait()
        await asking.cancel(batch.batch_id)
        while waits_for_cancel_command(batch.batch_id) and commands < 2:
            ((commands,),) = await database.read("SELECT COUNT(*) FROM commands")
        ((commands,),) = await database.read("SELECT COUNT(*) FROM commands")
        assert commands == 1
        ending.set()
        assert state(await asking.ended(batch.batch_id)) == "CANCELLED"


def waits_for_cancel_command(batch_id: str) -> bool:
    """Whether the orchestrator still waits for a command to cancel a batch that is being planned."""
    return any(task.get_name() == f"cancel-{batch_id}" for task in asyncio.all_tasks())


async def test_batch_says_that_the_orchestrator_is_overloaded(
    counting_expert: CountingExpert, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "CALM_SECONDS", 0.0)  # no round of the event loop is short enough
    monkeypatch.setattr(slots, "CALM_WAIT_SECONDS", 0.5)
    monkeypatch.setattr(slots, "OVERLOAD_SECONDS", 0.1)
    counting_expert.go_on.set()
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        batch = await asking.start(notes(20))
        assert await asking.waiting_for(batch.batch_id) == slots.OVERLOADED
        batch = await asking.ended(batch.batch_id)
    assert batch.counts.completed == 20
    assert batch.waiting_for == ""


async def test_a_batch_that_finds_no_place_to_be_planned_is_cancelled(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    counting_expert.asked["warm"] = 10
    full = settings.model_copy(update={"max_runs": 1})
    async with serve_orchestrator(full) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        busy = asyncio.create_task(asking.run(plan=PLAN, inputs=note("mine").inputs))
        await counting_expert.some.wait()
        batch = await asking.start(notes(3), request="shorten it")
        await asking.cancel(batch.batch_id)
        assert state(await asking.ended(batch.batch_id)) == "CANCELLED"
        assert not busy.done()
        counting_expert.go_on.set()
        assert run_ended(await busy).state == run_pb2.RUN_STATE_COMPLETED


async def test_a_batch_whose_task_vanishes_waits_and_says_so(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        batch = await asking.start(notes(30), max_at_once=5)
        await counting_expert.some.wait()
        peers.vanished.add("summarization")
        peers.changed.set()
        counting_expert.go_on.set()
        assert "no expert offers summarization" in await asking.waiting_for(batch.batch_id)
        peers.vanished.clear()
        peers.changed.set()
        batch = await asking.ended(batch.batch_id)
        assert (batch.waiting_for, batch.counts.completed) == ("", 30)


async def test_items_that_are_taken_up_before_their_expert_is_back_wait_for_it(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers
) -> None:
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        batch = await OrchestratorClient(stub).start(notes(30), max_at_once=5)
        await counting_expert.some.wait()
    peers.vanished.add("summarization")
    counting_expert.go_on.set()
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        assert "no expert offers summarization" in await asking.waiting_for(batch.batch_id)
        peers.vanished.clear()
        peers.changed.set()
        assert (await asking.ended(batch.batch_id)).counts.completed == 30


async def test_a_batch_that_waits_keeps_no_other_from_running(
    counting_expert: CountingExpert, settings: Settings, peers: ScriptedPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.batches.leases.MAX_ACTIVE", 1)
    async with serve_orchestrator(settings) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        stuck = await asking.start(notes(30), max_at_once=5)
        await counting_expert.some.wait()
        peers.vanished.add("summarization")
        peers.changed.set()
        counting_expert.go_on.set()
        assert "no expert offers summarization" in await asking.waiting_for(stuck.batch_id)
        other = plan_pb2.Plan(tasks=[step(1, "translation")])
        batches = [await asking.start(notes(3), plan=other) for _ in range(2)]
        for batch in batches:
            assert (await asking.ended(batch.batch_id)).counts.completed == 3
        peers.vanished.clear()
        peers.changed.set()
        assert (await asking.ended(stuck.batch_id)).counts.completed == 30


async def test_people_are_served_while_batches_have_all_their_places(
    counting_expert: CountingExpert, settings: Settings
) -> None:
    crowded = settings.model_copy(update={"max_runs": 2, "batch_items": 4})
    async with serve_orchestrator(crowded) as running, connected(running) as stub:
        asking = OrchestratorClient(stub)
        batches = [await asking.start(notes(20), PLAN_ITEMS) for _ in range(3)]
        counting_expert.asked["warm"] = 10
        await counting_expert.some.wait()
        counting_expert.go_on.set()
        events = await asking.run(plan=PLAN, inputs=note("mine").inputs)
        assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
        for batch in batches:
            assert (await asking.ended(batch.batch_id)).counts.completed == 20


PLAN_ITEMS = 7
"""Items in a page."""
