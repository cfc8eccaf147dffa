"""Experts that sleep, and tasks that wait for them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from google.rpc import code_pb2

from protos.hugginggpt.internal.v1 import selector_pb2 as pb
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import call_context
from services.common.channel import connect
from services.common.errors import NotFound, Unavailable
from services.common.server import serving
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.client import ExpertClient
from tests.fakes import FakeExpert, ScriptedSelector, card
from tests.support.expert_calls import SPEC, Asked, Asker, asking, candidate
from tests.support.orchestrator import END, OrchestratorUnderTest, task, task_states

pytestmark = pytest.mark.timeout(20)

EXPERT = "diffusion"


class Catalogue(ScriptedSelector):
    """A catalogue whose one expert sleeps until a test wakes it."""

    def __init__(self) -> None:
        super().__init__()
        self.where = self.sleeping()
        self.watched = asyncio.Event()
        self.streams = self.watches = self.asked = 0
        self.breaks = False
        self._news, self._left = asyncio.Event(), asyncio.Event()

    @staticmethod
    def sleeping(start: float | None = None) -> pb.SelectedCandidate:
        asleep = candidate(model="model", expert=EXPERT, dormant=True)
        if start is not None:
            asleep.candidate.start_duration.FromTimedelta(timedelta(seconds=start))
        return asleep

    def changes(self, where: pb.SelectedCandidate | None = None) -> None:
        """Something is different in the catalogue; perhaps where the expert is."""
        self.where = where or self.where
        self._news.set()
        self._news = asyncio.Event()

    async def again(self) -> Sequence[pb.SelectedCandidate]:
        self.asked += 1
        return [self.where]

    async def unwatched(self) -> None:
        """Waits until nobody watches any more."""
        while self.streams:
            self._left.clear()
            await self._left.wait()

    async def WatchCatalogue(self, request: pb.WatchCatalogueRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.streams += 1
        self.watches += 1
        try:
            while True:
                news = self._news
                await context.write(pb.WatchCatalogueResponse(revision="any"))
                self.watched.set()
                if self.breaks:
                    self.breaks = False
                    raise Unavailable("the selector is stopping", remedy="watch again")
                await news.wait()
        finally:
            self.streams -= 1
            self._left.set()


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.fixture
async def selector_address(catalogue: Catalogue) -> AsyncIterator[str]:
    """Address of a server of the catalogue."""
    register, service = partial(rpc.add_SelectorServiceServicer_to_server, catalogue), "SelectorService"
    async with serving(register, pb.DESCRIPTOR.services_by_name[service]) as running:
        yield f"127.0.0.1:{running.port}"


@pytest.fixture
async def attempts(selector_address: str) -> AsyncIterator[ExpertClient]:
    async with asking(selector_address) as attempts:
        yield attempts


@asynccontextmanager
async def awake() -> AsyncIterator[str]:
    async with FakeExpert(EXPERT, [card("model", SPEC.name), card("other", SPEC.name)]).serving() as address:
        yield address


async def test_a_task_waits_for_its_expert_and_goes_on_as_soon_as_it_wakes(
    attempts: ExpertClient, catalogue: Catalogue
) -> None:
    waits, asked = Asker(attempts, seconds=100), Asked()
    catalogue.where = catalogue.sleeping(start=42)
    task = asyncio.create_task(waits.infer(catalogue.where, again=catalogue.again, asked=asked))
    await catalogue.watched.wait()
    assert asked.told == ["task_waiting"]
    told = asked.events[0].task_waiting
    assert (told.expert, told.start_duration.seconds, EXPERT in told.reason) == (EXPERT, 42, True)
    catalogue.changes()
    async with awake() as address:
        catalogue.changes(candidate(address, expert=EXPERT))
        async with asyncio.timeout(10):
            await task
    assert (asked.result.outputs["text"].text, asked.result.attempt) == ("hello", 1)
    assert asked.told == ["task_waiting", "task_started"]
    await catalogue.unwatched()


async def test_one_stream_serves_all_who_wait_and_is_there_only_for_them(
    attempts: ExpertClient, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Counter[str]()

    class Gauge:
        def add(self, amount: int, labels: dict[str, str]) -> None:
            wanted[labels["expert"]] += amount

    monkeypatch.setattr("services.orchestrator.metrics.expert_queue_depth", Gauge())
    waiting = [
        asyncio.create_task(Asker(attempts, f"run-{number}").infer(catalogue.where, again=catalogue.again))
        for number in range(20)
    ]
    await catalogue.watched.wait()
    assert (catalogue.streams, wanted) == (1, {EXPERT: 20})
    waiting.pop().cancel()
    async with awake() as address:
        catalogue.changes(candidate(address, expert=EXPERT))
        for asked in await asyncio.gather(*waiting):
            assert asked.result.outputs["text"].text == "hello"
    await catalogue.unwatched()
    assert (catalogue.watches, wanted) == (1, {EXPERT: 0})


async def test_an_expert_that_woke_since_it_was_chosen_is_called_without_waiting(
    attempts: ExpertClient, catalogue: Catalogue
) -> None:
    async with awake() as address:
        asleep, catalogue.where = catalogue.where, candidate(address, expert=EXPERT)
        asked = await Asker(attempts, seconds=1).infer(asleep, again=catalogue.again)
    assert asked.told == ["task_started"]
    assert catalogue.watches == 0


async def test_a_stream_that_breaks_is_opened_anew_and_misses_nothing(
    attempts: ExpertClient, catalogue: Catalogue
) -> None:
    catalogue.breaks = True
    task = asyncio.create_task(Asker(attempts).infer(catalogue.where, again=catalogue.again))
    await catalogue.watched.wait()
    async with awake() as address:
        catalogue.where = candidate(address, expert=EXPERT)  # nobody is told but by the new stream
        asked = await task
    assert asked.result.outputs["text"].text == "hello"


class FailingOnce:
    """A selector's stub whose first watch raises what no caller expects."""

    def __init__(self, selector_address: rpc.SelectorServiceStub) -> None:
        self._selector = selector_address
        self._failed = False

    def WatchCatalogue(self, *given: Any, **named: Any) -> Any:
        if not self._failed:
            self._failed = True
            raise RuntimeError("an error that nobody expects")
        return self._selector.WatchCatalogue(*given, **named)


async def test_catalogue_watch_restarts_after_an_unexpected_exception(
    selector_address: str, catalogue: Catalogue
) -> None:
    async with connect(selector_address) as channel, asyncio.timeout(10):
        sleepers = CatalogueWatcher(FailingOnce(rpc.SelectorServiceStub(channel)))  # type: ignore[arg-type]  # as a stub
        with sleepers.watched() as changed:
            await changed.wait()
    assert catalogue.watches == 1


async def test_a_selector_that_does_not_choose_just_now_is_asked_again_later(
    attempts: ExpertClient, catalogue: Catalogue
) -> None:
    failures = iter([NotFound("nobody", reason="TASK"), Unavailable("away")])

    async def again() -> Sequence[pb.SelectedCandidate]:
        if failure := next(failures, None):
            raise failure
        return await catalogue.again()

    task = asyncio.create_task(Asker(attempts).infer(catalogue.where, again=again))
    await catalogue.watched.wait()
    async with awake() as address:
        catalogue.changes(candidate(address, expert=EXPERT))
        assert (await task).result.outputs["text"].text == "hello"


@pytest.mark.parametrize(("start", "seconds"), [(None, 100), (50.0, 40)], ids=["never seen", "seen"])
async def test_a_start_that_would_take_too_long_is_not_waited_for(
    attempts: ExpertClient, catalogue: Catalogue, start: float | None, seconds: float
) -> None:
    asleep = catalogue.where = catalogue.sleeping(start)
    async with awake() as address, asyncio.timeout(15):
        asker = Asker(attempts, seconds=seconds)
        alone = await asker.infer(asleep, again=catalogue.again)
        assert (alone.result.failure.code, alone.result.failure.reason) == (code_pb2.UNAVAILABLE, "EXPERT_DORMANT")
        assert EXPERT in alone.result.failure.message
        assert EXPERT in alone.result.failure.remedy
        local = await asker.infer(asleep, candidate(address, model="other"), again=catalogue.again)
        assert (local.result.by.model_id, local.failures) == ("other", [("UNAVAILABLE", "next_candidate")])
        remote = candidate(address, model="other", location=MODEL_LOCATION_EXTERNAL)
        closed = await asker.infer(asleep, remote, again=catalogue.again)
        assert closed.result.failure.reason == "EXPERT_DORMANT"
        opened = Asker(attempts, seconds=seconds, policy=DATA_POLICY_OPEN)
        assert (await opened.infer(asleep, remote, again=catalogue.again)).result.by.model_id == "other"
    assert catalogue.watches == 0


async def test_an_expert_that_does_not_wake_is_waited_for_no_longer_than_there_is_time(
    attempts: ExpertClient, catalogue: Catalogue
) -> None:
    asleep = catalogue.where = catalogue.sleeping(start=0.1)
    async with awake() as address, asyncio.timeout(5):
        asked = await Asker(attempts, seconds=1).infer(asleep, candidate(address, model="other"), again=catalogue.again)
        assert (asked.result.by.model_id, asked.failures) == ("other", [("UNAVAILABLE", "next_candidate")])
        asked = await Asker(attempts, seconds=0.3).infer(asleep, again=catalogue.again)
        assert asked.result.failure.reason == "EXPERT_DORMANT"
    await catalogue.unwatched()


async def test_who_stops_waiting_closes_the_stream(attempts: ExpertClient, catalogue: Catalogue) -> None:
    task = asyncio.create_task(Asker(attempts).infer(catalogue.where, again=catalogue.again))
    await catalogue.watched.wait()
    task.cancel()
    async with asyncio.timeout(10):
        await catalogue.unwatched()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_run_says_for_whom_it_waits_and_goes_on_once_that_expert_is_there(
    orchestrator: OrchestratorUnderTest,
) -> None:
    (there,) = orchestrator.peers.candidates
    asleep = candidate(model="model", expert=EXPERT, dormant=True)
    asleep.candidate.start_duration.FromSeconds(42)
    orchestrator.peers.candidates[:] = [asleep]
    orchestrator.peers.plan(task(1), END)
    request = CreateRunRequest(spec=RunSpec(request="do it"))
    events = []
    async with asyncio.timeout(10):
        async for event in orchestrator.stub.CreateRun(request, timeout=20, metadata=call_context.metadata()):
            events.append(event)
            if event.HasField("task_waiting"):
                there.candidate.expert = EXPERT
                orchestrator.peers.candidates[:] = [there]
                orchestrator.peers.changed.set()
    (waiting,) = [event.task_waiting for event in events if event.HasField("task_waiting")]
    assert (waiting.expert, waiting.start_duration.seconds) == (EXPERT, 42)
    assert task_states(events) == {1: "SUCCEEDED"}
