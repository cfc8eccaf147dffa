"""A journal that is unavailable for a while, and cancel commands through another orchestrator."""

import asyncio
import contextlib
import sqlite3

import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import artifact_pb2, expert_pb2, gateway_pb2, run_pb2
from services.common import call_context
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.orchestrator import (
    END,
    ScriptedPeers,
    connected,
    echo,
    ref,
    run_ended,
    task,
    task_states,
    wait_until_cancelled,
)


@pytest.fixture
def short_journal_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the waits for the journal."""
    monkeypatch.setattr("services.common.database.sqlite._BUSY_SECONDS", 0.02)
    monkeypatch.setattr("services.orchestrator.runs.run_log.JOURNAL_PAUSE_SECONDS", 0.02)


@pytest.mark.usefixtures("short_journal_timeouts")
async def test_no_task_starts_while_the_journal_is_unavailable(peers: ScriptedPeers, settings: Settings) -> None:
    first, may_end, second = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def infer(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "hello":
            first.set()
            await may_end.wait()
        else:
            second.set()
        return await echo(request)

    peers.infer["model"] = infer
    peers.plan(task(1), task(2, text=ref(1)), END)
    async with asyncio.timeout(20), serve_orchestrator(settings) as running, connected(running) as stub:
        call = stub.CreateRun(orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it")), timeout=20)
        events = aiter(call)
        (await anext(events))
        await first.wait()
        with contextlib.closing(sqlite3.connect(settings.journal, isolation_level=None)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            refused = stub.CreateRun(
                orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it")), timeout=20
            )
            with pytest.raises(Exception, match="UNAVAILABLE"):
                await anext(aiter(refused))
            may_end.set()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await second.wait()
        seen = [event async for event in events]
    assert task_states(seen) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert run_ended(seen).state == run_pb2.RUN_STATE_COMPLETED


async def test_cancel_is_forwarded_to_the_owner_of_the_run(peers: ScriptedPeers, settings: Settings) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()

    async def infer(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        return await wait_until_cancelled(inferring, cancelled)

    peers.infer["model"] = infer
    peers.plan(task(1), END)
    async with (
        asyncio.timeout(20),
        serve_orchestrator(settings) as owner,
        connected(owner) as stub,
        serve_orchestrator(settings) as other,
        connected(other) as other_stub,
    ):
        call = stub.CreateRun(
            orchestrator_pb2.CreateRunRequest(spec=run_pb2.RunSpec(request="do it")),
            timeout=20,
            metadata=call_context.metadata(),
        )
        run_id = (await anext(aiter(call))).run_id
        await inferring.wait()
        await other_stub.CancelRun(gateway_pb2.CancelRunRequest(run_id=run_id), timeout=5)
        await cancelled.wait()
        watching = other_stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=run_id), timeout=10)
        events = [event async for event in watching]
    assert run_ended(events).state == run_pb2.RUN_STATE_CANCELLED
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
