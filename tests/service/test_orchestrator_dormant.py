"""Dormant experts, and tasks that wait for their start."""

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
from tests.support.expert_calls import SPEC, SimulatedRun, TaskOutcome, candidate, open_client
from tests.support.orchestrator import END, OrchestratorUnderTest, task, task_states

pytestmark = pytest.mark.timeout(20)

EXPERT = "diffusion"


class Catalogue(ScriptedSelector):
    """A catalogue whose one expert is dormant until a test starts it."""

    def __init__(self) -> None:
        super().__init__()
        self.selected = self.dormant_candidate()
        self.watched = asyncio.Event()
        self.streams = self.watches = self.selections = 0
        self.interrupts_next = False
        self._change, self._stream_closed = asyncio.Event(), asyncio.Event()

    @staticmethod
    def dormant_candidate(start: float | None = None) -> pb.SelectedCandidate:
        dormant = candidate(model="model", expert=EXPERT, dormant=True)
        if start is not None:
            dormant.candidate.start_duration.FromTimedelta(timedelta(seconds=start))
        return dormant

    def change(self, selected: pb.SelectedCandidate | None = None) -> None:
        """Announces a change of the catalogue, with the expert's new candidate if it has changed."""
        self.selected = selected or self.selected
        self._change.set()
        self._change = asyncio.Event()

    async def reselect(self) -> Sequence[pb.SelectedCandidate]:
        self.selections += 1
        return [self.selected]

    async def wait_unwatched(self) -> None:
        """Waits until no stream is open."""
        while self.streams:
            self._stream_closed.clear()
            await self._stream_closed.wait()

    async def WatchCatalogue(self, request: pb.WatchCatalogueRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.streams += 1
        self.watches += 1
        try:
            while True:
                change = self._change
                await context.write(pb.WatchCatalogueResponse(revision="any"))
                self.watched.set()
                if self.interrupts_next:
                    self.interrupts_next = False
                    raise Unavailable("the selector is stopping", remedy="watch again")
                await change.wait()
        finally:
            self.streams -= 1
            self._stream_closed.set()


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
async def client(selector_address: str) -> AsyncIterator[ExpertClient]:
    async with open_client(selector_address) as client:
        yield client


@asynccontextmanager
async def serve_expert() -> AsyncIterator[str]:
    async with FakeExpert(EXPERT, [card("model", SPEC.name), card("other", SPEC.name)]).serving() as address:
        yield address


async def test_task_continues_as_soon_as_its_dormant_expert_has_started(
    client: ExpertClient, catalogue: Catalogue
) -> None:
    run, outcome = SimulatedRun(client, seconds=100), TaskOutcome()
    catalogue.selected = catalogue.dormant_candidate(start=42)
    task = asyncio.create_task(run.infer(catalogue.selected, reselect=catalogue.reselect, outcome=outcome))
    await catalogue.watched.wait()
    assert outcome.event_kinds == ["task_waiting"]
    waiting_event = outcome.events[0].task_waiting
    assert waiting_event.expert == EXPERT
    assert waiting_event.start_duration.seconds == 42
    assert EXPERT in waiting_event.reason
    catalogue.change()
    async with serve_expert() as address:
        catalogue.change(candidate(address, expert=EXPERT))
        async with asyncio.timeout(10):
            await task
    assert outcome.result.outputs["text"].text == "hello"
    assert outcome.result.attempt == 1
    assert outcome.event_kinds == ["task_waiting", "task_started"]
    await catalogue.wait_unwatched()


async def test_waiting_tasks_share_one_catalogue_stream(
    client: ExpertClient, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth = Counter[str]()

    class Gauge:
        def add(self, amount: int, labels: dict[str, str]) -> None:
            depth[labels["expert"]] += amount

    monkeypatch.setattr("services.orchestrator.metrics.expert_queue_depth", Gauge())
    waiting = [
        asyncio.create_task(
            SimulatedRun(client, f"run-{number}").infer(catalogue.selected, reselect=catalogue.reselect)
        )
        for number in range(20)
    ]
    await catalogue.watched.wait()
    assert catalogue.streams == 1
    assert depth == {EXPERT: 20}
    waiting.pop().cancel()
    async with serve_expert() as address:
        catalogue.change(candidate(address, expert=EXPERT))
        for outcome in await asyncio.gather(*waiting):
            assert outcome.result.outputs["text"].text == "hello"
    await catalogue.wait_unwatched()
    assert catalogue.watches == 1
    assert depth == {EXPERT: 0}


async def test_expert_that_has_started_since_the_selection_is_called_at_once(
    client: ExpertClient, catalogue: Catalogue
) -> None:
    async with serve_expert() as address:
        dormant, catalogue.selected = catalogue.selected, candidate(address, expert=EXPERT)
        outcome = await SimulatedRun(client, seconds=1).infer(dormant, reselect=catalogue.reselect)
    assert outcome.event_kinds == ["task_started"]
    assert catalogue.watches == 0


async def test_interrupted_catalogue_stream_is_reopened(client: ExpertClient, catalogue: Catalogue) -> None:
    catalogue.interrupts_next = True
    task = asyncio.create_task(SimulatedRun(client).infer(catalogue.selected, reselect=catalogue.reselect))
    await catalogue.watched.wait()
    async with serve_expert() as address:
        catalogue.selected = candidate(address, expert=EXPERT)  # without a change that the first stream could report
        outcome = await task
    assert outcome.result.outputs["text"].text == "hello"


class FailingOnce:
    """A selector stub whose first watch raises an unexpected exception."""

    def __init__(self, selector_address: rpc.SelectorServiceStub) -> None:
        self._selector = selector_address
        self._failed = False

    def WatchCatalogue(self, *given: Any, **named: Any) -> Any:
        if not self._failed:
            self._failed = True
            raise RuntimeError("unexpected")
        return self._selector.WatchCatalogue(*given, **named)


async def test_catalogue_watch_restarts_after_an_unexpected_exception(
    selector_address: str, catalogue: Catalogue
) -> None:
    async with connect(selector_address) as channel, asyncio.timeout(10):
        watcher = CatalogueWatcher(FailingOnce(rpc.SelectorServiceStub(channel)))  # type: ignore[arg-type]  # as a stub
        with watcher.watched() as changed:
            await changed.wait()
    assert catalogue.watches == 1


async def test_failed_selection_is_repeated_after_the_next_change(client: ExpertClient, catalogue: Catalogue) -> None:
    failures = iter([NotFound("no expert", reason="TASK"), Unavailable("unavailable")])

    async def reselect() -> Sequence[pb.SelectedCandidate]:
        if failure := next(failures, None):
            raise failure
        return await catalogue.reselect()

    task = asyncio.create_task(SimulatedRun(client).infer(catalogue.selected, reselect=reselect))
    await catalogue.watched.wait()
    async with serve_expert() as address:
        catalogue.change(candidate(address, expert=EXPERT))
        assert (await task).result.outputs["text"].text == "hello"


@pytest.mark.parametrize(
    ("start", "seconds"), [(None, 100), (50.0, 40)], ids=["unknown start duration", "measured start duration"]
)
async def test_start_longer_than_the_time_left_is_not_waited_for(
    client: ExpertClient, catalogue: Catalogue, start: float | None, seconds: float
) -> None:
    dormant = catalogue.selected = catalogue.dormant_candidate(start)
    async with serve_expert() as address, asyncio.timeout(15):
        run = SimulatedRun(client, seconds=seconds)
        only = await run.infer(dormant, reselect=catalogue.reselect)
        assert only.result.failure.code == code_pb2.UNAVAILABLE
        assert only.result.failure.reason == "EXPERT_DORMANT"
        assert EXPERT in only.result.failure.message
        assert EXPERT in only.result.failure.remedy
        local = await run.infer(dormant, candidate(address, model="other"), reselect=catalogue.reselect)
        assert local.result.by.model_id == "other"
        assert local.failed_attempts == [("UNAVAILABLE", "next_candidate")]
        remote = candidate(address, model="other", location=MODEL_LOCATION_EXTERNAL)
        closed = await run.infer(dormant, remote, reselect=catalogue.reselect)
        assert closed.result.failure.reason == "EXPERT_DORMANT"
        opened = SimulatedRun(client, seconds=seconds, policy=DATA_POLICY_OPEN)
        assert (await opened.infer(dormant, remote, reselect=catalogue.reselect)).result.by.model_id == "other"
    assert catalogue.watches == 0


async def test_wait_for_a_start_ends_with_the_time_left(client: ExpertClient, catalogue: Catalogue) -> None:
    dormant = catalogue.selected = catalogue.dormant_candidate(start=0.1)
    async with serve_expert() as address, asyncio.timeout(15):
        outcome = await SimulatedRun(client, seconds=3).infer(
            dormant, candidate(address, model="other"), reselect=catalogue.reselect
        )
        assert outcome.result.by.model_id == "other"
        assert outcome.failed_attempts == [("UNAVAILABLE", "next_candidate")]
        outcome = await SimulatedRun(client, seconds=0.3).infer(dormant, reselect=catalogue.reselect)
        assert outcome.result.failure.reason == "EXPERT_DORMANT"
    await catalogue.wait_unwatched()


async def test_cancelled_wait_closes_the_catalogue_stream(client: ExpertClient, catalogue: Catalogue) -> None:
    task = asyncio.create_task(SimulatedRun(client).infer(catalogue.selected, reselect=catalogue.reselect))
    await catalogue.watched.wait()
    task.cancel()
    async with asyncio.timeout(10):
        await catalogue.wait_unwatched()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_run_reports_its_wait_and_continues_once_the_expert_has_started(
    orchestrator: OrchestratorUnderTest,
) -> None:
    (running,) = orchestrator.peers.candidates
    dormant = candidate(model="model", expert=EXPERT, dormant=True)
    dormant.candidate.start_duration.FromSeconds(42)
    orchestrator.peers.candidates[:] = [dormant]
    orchestrator.peers.plan(task(1), END)
    request = CreateRunRequest(spec=RunSpec(request="do it"))
    events = []
    async with asyncio.timeout(10):
        async for event in orchestrator.stub.CreateRun(request, timeout=20, metadata=call_context.metadata()):
            events.append(event)
            if event.HasField("task_waiting"):
                running.candidate.expert = EXPERT
                orchestrator.peers.candidates[:] = [running]
                orchestrator.peers.changed.set()
    (waiting,) = [event.task_waiting for event in events if event.HasField("task_waiting")]
    assert waiting.expert == EXPERT
    assert waiting.start_duration.seconds == 42
    assert task_states(events) == {1: "SUCCEEDED"}
