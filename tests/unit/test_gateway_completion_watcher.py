"""Each end of a run or batch is processed once, also with several watchers and after an outage."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest

from gateway.core.completion_watcher import (
    FULL_OVERLAP_SECONDS,
    OVERLAP_SECONDS,
    RETENTION_SECONDS,
    SHORT_OVERLAP_SECONDS,
    CompletionWatcher,
)
from gateway.database import gateway_store
from gateway.limits.quotas import RunSlots
from gateway.limits.usage_counters import DAY, StoredCounters
from protos.hugginggpt.internal.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, PRIORITY_INTERACTIVE, Caller
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common.database import Database
from services.common.errors import Overloaded, Unavailable
from tests.conftest import Serve
from tests.fakes import ScriptedOrchestrator
from tests.support.clock import Clock

NOW = 20 * 365 * DAY + 1000.0


class Ledger(ScriptedOrchestrator):
    """An orchestrator that lists ended runs in pages of two."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[pb.EndedRun] = []
        self.requests: list[pb.ListEndedRunsRequest] = []
        self.away = False
        self.looked = asyncio.Event()

    def end(self, run_id: str, at: float, tokens: int = 10, *, item: bool = False) -> None:
        caller = Caller(tenant="a", key_id="k", priority=PRIORITY_BATCH if item else PRIORITY_INTERACTIVE)
        run = pb.EndedRun(run_id=run_id, caller=caller, usage=Usage(input_tokens=tokens))
        run.end_time.FromMicroseconds(int(at * 1e6))
        self.ended.append(run)

    async def ListEndedRuns(self, request: pb.ListEndedRunsRequest, context: Any) -> pb.ListEndedRunsResponse:
        self.requests.append(request)
        self.looked.set()
        if self.away:
            raise Unavailable("away", remedy="wait")
        earliest_webhook, start = request.ended_after.ToMicroseconds() / 1e6, int(request.page_token or 0)
        found = [run for run in self.ended if run.end_time.ToMicroseconds() / 1e6 >= earliest_webhook]
        more = str(start + 2) if found[start + 2 :] else ""
        return pb.ListEndedRunsResponse(runs=found[start : start + 2], next_page_token=more)


@pytest.fixture
async def gateway_database(database_url: str) -> AsyncIterator[Database]:
    async with gateway_store(database_url) as database:
        yield database


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
async def orchestrator_channel(serve: Serve, ledger: Ledger) -> grpc.aio.Channel:
    register = partial(rpc.add_OrchestratorServiceServicer_to_server, ledger)
    return await serve(register, pb.DESCRIPTOR.services_by_name["OrchestratorService"])


def following(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, clock: Clock | None = None
) -> CompletionWatcher:
    return CompletionWatcher(rpc.OrchestratorServiceStub(orchestrator_channel), gateway_database, clock or Clock(NOW))


async def tokens(gateway_database: Database, at: float = NOW) -> int:
    return await StoredCounters(gateway_database, Clock(at)).add("k", "tokens", DAY, 0)


async def test_each_end_is_processed_once_with_two_watchers(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger
) -> None:
    for number in range(5):
        ledger.end(f"run_{number}", NOW - number)
    both = [following(orchestrator_channel, gateway_database), following(orchestrator_channel, gateway_database)]
    await asyncio.gather(*(each.poll() for each in both))
    await asyncio.gather(*(each.poll() for each in both))
    assert await tokens(gateway_database) == 50


async def test_end_that_is_committed_late_is_processed(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger
) -> None:
    ledger.end("run_1", NOW)
    await following(orchestrator_channel, gateway_database).poll()
    ledger.end("run_2", NOW - OVERLAP_SECONDS + 1)
    await following(orchestrator_channel, gateway_database).poll()
    assert await tokens(gateway_database) == 20
    assert ledger.requests[-1].ended_after.ToMicroseconds() / 1e6 == NOW - OVERLAP_SECONDS


async def test_only_some_polls_use_the_full_overlap(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger
) -> None:
    clock = Clock(NOW)
    looking = following(orchestrator_channel, gateway_database, clock)
    ledger.end("run_1", NOW)
    for seconds in (0.0, 1.0, 1.0, FULL_OVERLAP_SECONDS):
        clock.now += seconds
        await looking.poll()
    back = [NOW - request.ended_after.ToMicroseconds() / 1e6 for request in ledger.requests]
    assert back[1:] == [SHORT_OVERLAP_SECONDS, SHORT_OVERLAP_SECONDS, OVERLAP_SECONDS]


async def test_only_tokens_of_batch_items_are_counted(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger
) -> None:
    ledger.end("plain", NOW, 0)
    ledger.end("thrifty", NOW, 0, item=True)
    ledger.end("costly", NOW, 10, item=True)
    for _ in range(2):
        await following(orchestrator_channel, gateway_database).poll()
    assert {row[0] for row in await gateway_database.read("SELECT run_id FROM ended_runs")} == {"plain", "costly"}
    assert await tokens(gateway_database) == 10


async def test_tokens_count_for_the_day_on_which_the_run_ended(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger
) -> None:
    ledger.end("run_1", NOW - 2000)
    await following(orchestrator_channel, gateway_database).poll()
    assert await tokens(gateway_database) == 0
    assert await tokens(gateway_database, NOW - 2000) == 10


async def test_ends_during_an_outage_are_processed_afterwards(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.core.completion_watcher.POLL_SECONDS", 0)
    slots = RunSlots(gateway_database, Clock(NOW))
    await slots.assign(await slots.reserve("k", 1), "run_1")
    ledger.away = True
    async with following(orchestrator_channel, gateway_database).running(), asyncio.timeout(20):
        await ledger.looked.wait()
        with pytest.raises(Overloaded):
            await slots.reserve("k", 1)
        ledger.end("run_1", NOW)
        ledger.away = False
        while not await tokens(gateway_database):
            pass
    await slots.reserve("k", 1)


async def test_polling_continues_after_an_unexpected_exception(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.core.completion_watcher.POLL_SECONDS", 0)
    ledger.end("run_1", NOW)
    looking, looks = following(orchestrator_channel, gateway_database), 0
    real_look = looking.poll

    async def failing_once() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RuntimeError("an unexpected error")
        await real_look()

    monkeypatch.setattr(looking, "poll", failing_once)
    async with looking.running(), asyncio.timeout(20):
        while not await tokens(gateway_database):
            pass
    assert looks > 1


async def test_last_end_is_processed_once_during_a_long_pause(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.core.completion_watcher.POLL_SECONDS", 0)
    ledger.end("run_1", NOW)
    await following(orchestrator_channel, gateway_database).poll()
    clock = Clock(NOW + 2 * RETENTION_SECONDS)
    async with following(orchestrator_channel, gateway_database, clock).running(), asyncio.timeout(20):
        for _ in range(3):  # before and after old entries are deleted
            ledger.looked.clear()
            await ledger.looked.wait()
    assert await tokens(gateway_database) == 0, "that day is forgotten, and nothing is counted for it again"


async def test_keys_of_unlisted_ends_are_deleted(
    orchestrator_channel: grpc.aio.Channel, gateway_database: Database, ledger: Ledger
) -> None:
    ledger.end("run_1", NOW)
    await following(orchestrator_channel, gateway_database).poll()
    ledger.end("run_2", NOW + RETENTION_SECONDS + 60)
    async with (
        following(orchestrator_channel, gateway_database, Clock(NOW + RETENTION_SECONDS + 60)).running(),
        asyncio.timeout(20),
    ):
        while await gateway_database.read("SELECT 1 FROM ended_runs WHERE run_id = 'run_1'"):
            pass
    assert len(await gateway_database.read("SELECT 1 FROM ended_runs")) == 1
    assert await tokens(gateway_database, NOW + RETENTION_SECONDS + 60) == 10
