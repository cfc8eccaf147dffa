import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from experts.host import load_context
from experts.host.handler import Handler, single
from protos.hugginggpt.v1.expert_pb2 import ProgressRequest
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED, MODEL_STATE_LOADABLE, MODEL_STATE_READY
from services.common import errors
from tests.support.expert_host import NOT_SERVING, SERVING, Gate, Start, hosts, reached, takes


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with hosts(tmp_path) as start:
        yield start


async def test_a_model_that_does_not_load_fails_alone(start: Start) -> None:
    loads = []

    def broken(model_id: str, device: str) -> Handler:
        loads.append(model_id)
        raise errors.FailedPrecondition("its licence is missing", remedy="get one")

    host = await start(broken)
    await host.until(SERVING)
    refusals = [await host.refusal() for _ in range(3)]
    assert {(e.code.name, e.reason, e.remedy) for e in refusals} == {("FAILED_PRECONDITION", "LOAD_FAILED", "get one")}
    assert loads == ["m"]
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    m, other = (await host.describe()).models
    assert (m.state, other.state) == (MODEL_STATE_FAILED, MODEL_STATE_READY)
    assert "its licence is missing" in m.failure
    assert await host.health("m", "other") == [NOT_SERVING, SERVING]


async def test_an_expert_none_of_whose_models_load_does_not_get_ready(start: Start) -> None:
    tried = threading.Event()

    def broken(model_id: str, device: str) -> Handler:
        tried.set()
        raise ImportError("engine")

    host = await start(broken, preload=["m"])
    await reached(tried)
    assert (await host.refusal()).reason == "LOAD_FAILED"
    assert await host.health("", "readiness", "liveness") == [NOT_SERVING, NOT_SERVING, SERVING]


async def test_readiness_waits_for_the_models(start: Start) -> None:
    started, release = threading.Event(), threading.Event()

    def slow(model_id: str, device: str) -> Handler:
        started.set()
        release.wait(5)
        return single(lambda inputs, parameters: {"text": "slow"})

    host = await start(slow)
    await reached(started)
    early = await host.describe()
    assert [card.state for card in early.models] == [MODEL_STATE_LOADABLE] * 2
    assert not early.HasField("start_duration")
    assert await host.health("", "startup", "readiness", "m") == [NOT_SERVING] * 4
    release.set()
    await host.until(SERVING)
    await host.until(SERVING, "m")
    ready = await host.describe(early.revision)
    assert [card.state for card in ready.models] == [MODEL_STATE_READY] * 2
    assert ready.start_duration.ToTimedelta() > timedelta()


async def test_a_description_changes_when_a_model_does_and_only_then(start: Start) -> None:
    host = await start(preload=())
    await host.until(SERVING)
    before = await host.describe()
    assert (before.expert, before.version, [spec.name for spec in before.tasks]) == ("test", "0", ["saying"])
    assert list(before.load.loaded) == []
    unchanged = await host.describe(before.revision)
    assert (unchanged.unchanged, len(unchanged.tasks), len(unchanged.models)) == (True, 0, 0)
    await host.infer()
    after = await host.describe(before.revision)
    assert (after.unchanged, after.revision != before.revision) == (False, True)
    assert [card.state for card in after.models] == [MODEL_STATE_READY, MODEL_STATE_LOADABLE]
    assert list(after.load.loaded) == ["m"]
    assert after.models[0].p50.ToTimedelta() > timedelta()
    again = await host.describe(after.revision)
    assert (again.unchanged, list(again.load.loaded)) == (True, ["m"])


async def test_a_load_under_way_is_told_in_the_description_and_to_who_waits(start: Start) -> None:
    started, release = threading.Event(), threading.Event()

    def slow(model_id: str, device: str) -> Handler:
        load_context.current().progress(0.25, "downloading 1 of 4 MB")
        started.set()
        release.wait(5)
        return single(lambda inputs, parameters: {"text": "slow"})

    host = await start(slow, preload=())
    before = await host.describe()
    call = host.infer(call_id="c")
    await reached(started)
    during = await host.describe(before.revision)
    assert during.unchanged
    (told,) = during.load.loading
    assert (told.model, told.fraction, told.message) == ("m", 0.25, "downloading 1 of 4 MB")
    progress: Any = host.stub.Progress(ProgressRequest(call_ids=["c"]), timeout=10)
    assert (await progress.read()).message == "downloading 1 of 4 MB"
    release.set()
    assert (await call).outputs["text"].text == "slow"
    assert not (await host.describe()).load.loading


async def test_a_model_made_to_leave_is_told_and_comes_back_when_asked(start: Start) -> None:
    host = await start(takes(2), takes(2), preload=("m",), memory_bytes=3)
    await host.until(SERVING, "m")
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    assert list((await host.describe()).load.loaded) == ["other"]
    await host.until(NOT_SERVING, "m")
    assert (await host.infer()).outputs["text"].text == "hello"
    told = await host.describe()
    assert list(told.load.loaded) == ["m"]
    assert {card.id: card.loaded_bytes for card in told.models} == {"m": 2, "other": 2}


async def test_a_model_that_does_not_come_back_makes_the_expert_not_alive_until_it_does(start: Start) -> None:
    gate = Gate()
    host = await start(gate, device_seconds=0.1)
    call = asyncio.ensure_future(host.infer())
    await host.until(NOT_SERVING, "liveness")
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    gate.release.set()
    await call
    await host.until(SERVING, "liveness")


async def test_a_load_that_does_not_come_back_makes_the_expert_not_alive_until_it_does(start: Start) -> None:
    release = threading.Event()

    def stuck(model_id: str, device: str) -> Handler:
        release.wait(10)
        return single(lambda inputs, parameters: {"text": "late"})

    host = await start(stuck, preload=["other"], device_seconds=0.1, load_seconds=0.1)
    call = asyncio.ensure_future(host.infer())
    await host.until(NOT_SERVING, "liveness")
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    release.set()
    assert (await call).outputs["text"].text == "late"
    await host.until(SERVING, "liveness")
