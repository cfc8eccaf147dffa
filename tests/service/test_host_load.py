import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from protos.hugginggpt.v1.expert_pb2 import ProgressRequest
from tests.support.expert_host import NOT_SERVING, SERVING, Gate, Start, hosts, reached, seen


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with hosts(tmp_path) as start:
        yield start


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    yield gate
    gate.release.set()


async def test_one_too_many_is_refused_at_once_and_other_models_go_on(start: Start, gate: Gate) -> None:
    host = await start(gate, max_waiting=1)
    first = host.infer("first")
    await reached(gate.entered)
    error = await host.refusal(text="second")
    assert (error.code.name, error.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
    assert error.retry_after
    assert error.retry_after > timedelta()
    assert (await host.infer("elsewhere", model="other")).outputs["text"].text == "elsewhere"
    load = (await host.describe()).load
    assert (load.running, load.waiting) == (1, 0)
    gate.release.set()
    assert (await first).outputs["text"].text == "first"
    assert (await host.infer("third")).outputs["text"].text == "third"
    assert gate.texts == ["first", "third"]


async def test_a_caller_that_leaves_is_free_and_its_model_hears_of_it(start: Start, gate: Gate) -> None:
    host = await start(gate, max_waiting=1)
    call = host.infer("first")
    await reached(gate.entered)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await reached(gate.noticed)
    following = host.infer("second")  # its place is free, though the thread is not
    gate.release.set()
    assert (await following).outputs["text"].text == "second"


async def test_a_call_that_takes_too_long_is_ended(start: Start, gate: Gate) -> None:
    host = await start(gate, call_seconds=0.05)
    error = await host.refusal()
    assert (error.code.name, error.reason) == ("DEADLINE_EXCEEDED", "DEADLINE")
    await reached(gate.noticed)


async def test_progress_follows_a_call_to_its_end(start: Start, gate: Gate) -> None:
    host = await start(gate)
    call = host.infer(call_id="c-1")
    await reached(gate.entered)
    request = ProgressRequest(call_ids=["c-1", "unknown"])
    steps = []
    async for step in host.stub.Progress(request, timeout=10):
        steps.append((step.call_id, step.fraction, step.message))
        gate.release.set()
    assert steps == [("c-1", 0.5, "half")]
    assert (await call).outputs["text"].text == "hello"


async def test_progress_of_another_tenant_is_not_shown(start: Start, gate: Gate) -> None:
    host = await start(gate)
    call = host.infer(tenant="acme", call_id="c-1")
    await reached(gate.entered)
    assert [step async for step in host.stub.Progress(ProgressRequest(call_ids=["c-1"]), timeout=10)] == []
    gate.release.set()
    await call


async def test_a_call_under_way_is_finished_before_the_server_stops(start: Start, gate: Gate) -> None:
    host = await start(gate, DRAIN_SECONDS=10)
    call = asyncio.ensure_future(host.infer("last"))
    await reached(gate.entered)
    watch = host.watch()
    await seen(watch, SERVING)
    ending = asyncio.create_task(host.stop())
    await seen(watch, NOT_SERVING)
    watch.cancel()
    gate.release.set()
    assert (await call).outputs["text"].text == "last"
    await ending
