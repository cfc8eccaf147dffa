import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from protos.hugginggpt.v1.expert_pb2 import ProgressRequest
from tests.support.expert_host import NOT_SERVING, SERVING, Gate, Start, wait_for_event, wait_for_status


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    yield gate
    gate.release.set()


async def test_call_over_the_limit_is_refused_and_other_models_answer(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, max_waiting=1)
    first = host.infer("first")
    await wait_for_event(gate.entered)
    error = await host.refusal(text="second")
    assert error.code.name == "RESOURCE_EXHAUSTED"
    assert error.reason == "OVERLOADED"
    assert error.retry_after
    assert error.retry_after > timedelta()
    assert (await host.infer("elsewhere", model="other")).outputs["text"].text == "elsewhere"
    load = (await host.describe()).load
    assert load.running == 1
    assert load.waiting == 0
    gate.release.set()
    assert (await first).outputs["text"].text == "first"
    assert (await host.infer("third")).outputs["text"].text == "third"
    assert gate.texts == ["first", "third"]


async def test_cancelled_call_frees_its_slot_and_notifies_the_model(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, max_waiting=1)
    call = host.infer("first")
    await wait_for_event(gate.entered)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await wait_for_event(gate.noticed)
    following = host.infer("second")  # its slot is free, although the thread is busy
    gate.release.set()
    assert (await following).outputs["text"].text == "second"


async def test_call_over_the_time_limit_fails(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, call_seconds=0.5)
    error = await host.refusal()
    assert error.code.name == "DEADLINE_EXCEEDED"
    assert error.reason == "DEADLINE"
    await wait_for_event(gate.noticed)


async def test_progress_is_streamed_until_the_call_ends(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate)
    call = host.infer(call_id="c-1")
    await wait_for_event(gate.entered)
    request = ProgressRequest(call_ids=["c-1", "unknown"])
    steps = []
    async for step in host.stub.Progress(request, timeout=10):
        steps.append((step.call_id, step.fraction, step.message))
        gate.release.set()
    assert steps == [("c-1", 0.5, "half")]
    assert (await call).outputs["text"].text == "hello"


async def test_progress_of_another_tenant_is_hidden(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate)
    call = host.infer(tenant="acme", call_id="c-1")
    await wait_for_event(gate.entered)
    assert [step async for step in host.stub.Progress(ProgressRequest(call_ids=["c-1"]), timeout=10)] == []
    gate.release.set()
    await call


async def test_active_call_completes_before_the_server_stops(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, DRAIN_SECONDS=10)
    call = asyncio.ensure_future(host.infer("last"))
    await wait_for_event(gate.entered)
    watch = host.watch()
    await wait_for_status(watch, SERVING)
    ending = asyncio.create_task(host.stop())
    await wait_for_status(watch, NOT_SERVING)
    watch.cancel()
    gate.release.set()
    assert (await call).outputs["text"].text == "last"
    await ending
