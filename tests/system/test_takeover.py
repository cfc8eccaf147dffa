"""Two orchestrators with one journal: a run always has exactly one active owner."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.gateway_pb2 import GetRunRequest, WatchRunRequest
from protos.hugginggpt.v1.run_pb2 import (
    ON_DISCONNECT_CANCEL,
    ON_DISCONNECT_UNSPECIFIED,
    RUN_STATE_COMPLETED,
    OnDisconnect,
    RunSpec,
)
from services.common import call_context
from tests.support import postgres as servers
from tests.support.orchestrator import END, ScriptedPeers, ref, task, task_states
from tests.system.conftest import eventually
from tests.system.replicas import Replica, replicas

pytestmark = pytest.mark.slow

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

SECONDS = 30
LONG_LEASE_SECONDS = 600.0
"""Longer than any wait here: a run that changes its owner within SECONDS was released before its lease ended."""


class Calls:
    """Calls of the second task, each blocked until the test answers it."""

    def __init__(self, peers: ScriptedPeers) -> None:
        self.arrived: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()
        self.first_task_calls = 0
        peers.plan(task(1), task(2, text=ref(1)), END)
        peers.infer["model"] = self._infer

    async def next(self) -> "asyncio.Future[str]":
        async with asyncio.timeout(SECONDS):
            return await self.arrived.get()

    async def _infer(self, request: InferRequest) -> dict[str, Value]:
        if request.inputs["text"].text == "hello":
            self.first_task_calls += 1
            return {"text": Value(text="first")}
        answer = asyncio.get_running_loop().create_future()
        self.arrived.put_nowait(answer)
        return {"text": Value(text=await answer)}


@pytest.fixture
async def calls(peers: ScriptedPeers) -> Calls:
    return Calls(peers)


@pytest.fixture(params=["sqlite", "postgresql"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            yield str(tmp_path / "journal.sqlite")
        else:
            yield await stack.enter_async_context(servers.new_database(request.getfixturevalue("postgres")))


StartReplicas = Callable[[float], Coroutine[Any, Any, tuple[Replica, Replica]]]


@pytest.fixture
async def start_replicas(peer_addresses: dict[str, str], journal: str, tmp_path: Path) -> AsyncIterator[StartReplicas]:
    """Starts two replicas with the given lease in seconds."""
    async with AsyncExitStack() as stack:

        async def start(lease_seconds: float) -> tuple[Replica, Replica]:
            opened = replicas(tmp_path, journal, peer_addresses, lease_seconds=lease_seconds)
            one, other = await stack.enter_async_context(opened)
            return one, other

        yield start


class EventReader:
    """Reads a run's event stream to its end in the background."""

    def __init__(self, stream: Any) -> None:
        self.events: list[RunEvent] = []
        self.second_started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The run's id, once the start of its second task is stored."""
        self.end = asyncio.create_task(self._read(stream))

    async def _read(self, stream: Any) -> grpc.StatusCode:
        try:
            async for event in stream:
                self.events.append(event)
                if event.HasField("task_started") and event.task_id == 2 and not self.second_started.done():
                    self.second_started.set_result(event.run_id)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def start_run(replica: Replica, on_disconnect: "OnDisconnect.ValueType" = ON_DISCONNECT_UNSPECIFIED) -> EventReader:
    request = CreateRunRequest(spec=RunSpec(request="do it", on_disconnect=on_disconnect))
    return EventReader(replica.stub.CreateRun(request, timeout=SECONDS, metadata=call_context.metadata()))


def watch(replica: Replica, run_id: str) -> EventReader:
    return EventReader(
        replica.stub.WatchRun(WatchRunRequest(run_id=run_id), timeout=SECONDS, metadata=call_context.metadata())
    )


async def pause(replica: Replica, journal: str) -> None:
    """Pauses an owner outside of transactions: within one it would lock the SQLite file."""
    replica.process.pause()
    while "://" not in journal and not await asyncio.to_thread(_is_free, journal):
        replica.process.resume()
        replica.process.pause()


def _is_free(file: str) -> bool:
    with closing(sqlite3.connect(file, timeout=0.1, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


async def until_taken_over(stub: "OrchestratorServiceAsyncStub", run_id: str) -> RunEvent:
    async for event in stub.WatchRun(WatchRunRequest(run_id=run_id), timeout=SECONDS, metadata=call_context.metadata()):
        if event.HasField("taken_over"):
            return event
    raise AssertionError("the run ended without a takeover")


def assert_complete(events: list[RunEvent]) -> None:
    """The run is complete, its second task has the result of the second owner, and no task ended twice."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].run_ended.state == RUN_STATE_COMPLETED
    assert task_states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    ends = [event.task_ended.result.outputs["text"].text for event in events if event.HasField("task_ended")]
    assert ends == ["first", "of the second owner"]


async def test_run_owner_paused_past_its_lease_writes_nothing(
    start_replicas: StartReplicas, calls: Calls, journal: str
) -> None:
    """The paused owner holds the answer of an active call and would write it."""
    one, other = await start_replicas(1.0)
    caller = start_run(one)
    first = await calls.next()
    run_id = await caller.second_started
    watched = watch(other, run_id)
    await pause(one, journal)
    await until_taken_over(other.stub, run_id)
    second = await calls.next()
    first.set_result("of the first owner")
    one.process.resume()
    await asyncio.to_thread(eventually, lambda: "lease lost" in one.process.log.read_text())
    second.set_result("of the second owner")
    assert await watched.end == grpc.StatusCode.OK
    assert await caller.end == grpc.StatusCode.OK
    assert_complete(watched.events)
    assert caller.events == watched.events
    assert calls.first_task_calls == 1
    stored = [
        await replica.stub.GetRun(GetRunRequest(run_id=run_id), timeout=SECONDS, metadata=call_context.metadata())
        for replica in (one, other)
    ]
    assert stored[0] == stored[1]
    assert stored[0].last_sequence == len(watched.events)


@pytest.mark.parametrize("on_disconnect", [ON_DISCONNECT_UNSPECIFIED, ON_DISCONNECT_CANCEL])
async def test_stopped_orchestrator_releases_its_runs_and_cancels_none(
    start_replicas: StartReplicas, calls: Calls, on_disconnect: "OnDisconnect.ValueType"
) -> None:
    one, other = await start_replicas(LONG_LEASE_SECONDS)
    caller = start_run(one, on_disconnect)
    await calls.next()
    run_id = await caller.second_started
    watched = watch(other, run_id)
    stopping = asyncio.create_task(one.process.stop())
    await until_taken_over(other.stub, run_id)
    (await calls.next()).set_result("of the second owner")
    assert await caller.end == grpc.StatusCode.UNAVAILABLE
    assert await watched.end == grpc.StatusCode.OK
    assert_complete(watched.events)
    assert caller.events == watched.events[: len(caller.events)]
    assert calls.first_task_calls == 1
    await stopping
    assert list(one.process.errors()) == []


async def test_stop_during_start_closes_all_connections(peer_addresses: dict[str, str], tmp_path: Path) -> None:
    """The journal's server accepts connections and never answers."""
    connected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as database:
        host, port = database.sockets[0].getsockname()
        journal = f"postgresql://me@{host}:{port}/journal"
        async with replicas(tmp_path, journal, peer_addresses, lease_seconds=1.0, count=1, ready=False) as (one,):
            async with asyncio.timeout(SECONDS):
                await connected.wait()
            await one.process.stop()
            assert list(one.process.errors()) == []


async def test_run_of_killed_orchestrator_is_taken_over(start_replicas: StartReplicas, calls: Calls) -> None:
    one, other = await start_replicas(2.0)
    caller = start_run(one)
    await calls.next()
    run_id = await caller.second_started
    await one.process.kill()
    await until_taken_over(other.stub, run_id)
    (await calls.next()).set_result("of the second owner")
    watched = watch(other, run_id)
    assert await watched.end == grpc.StatusCode.OK
    assert_complete(watched.events)
    assert calls.first_task_calls == 1
