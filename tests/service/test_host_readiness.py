import asyncio
import threading
from datetime import timedelta
from typing import Any

from experts.host import load_context
from experts.host.handler import Handler, single
from protos.hugginggpt.v1.expert_pb2 import ProgressRequest
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED, MODEL_STATE_LOADABLE, MODEL_STATE_READY
from services.common import errors
from tests.support.expert_host import NOT_SERVING, SERVING, Gate, Start, wait_for_event, with_memory


async def test_failed_load_does_not_affect_other_models(start_host: Start) -> None:
    loads = []

    def broken(model_id: str, device: str) -> Handler:
        loads.append(model_id)
        raise errors.FailedPrecondition("its licence is missing", remedy="get one")

    host = await start_host(broken)
    await host.until(SERVING)
    refusals = [await host.refusal() for _ in range(3)]
    assert {(e.code.name, e.reason, e.remedy) for e in refusals} == {("FAILED_PRECONDITION", "LOAD_FAILED", "get one")}
    assert loads == ["m"]
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    m, other = (await host.describe()).models
    assert m.state == MODEL_STATE_FAILED
    assert other.state == MODEL_STATE_READY
    assert "its licence is missing" in m.failure
    assert await host.health("m", "other") == [NOT_SERVING, SERVING]


async def test_expert_without_loaded_models_is_not_ready(start_host: Start) -> None:
    tried = threading.Event()

    def broken(model_id: str, device: str) -> Handler:
        tried.set()
        raise ImportError("engine")

    host = await start_host(broken, preload=["m"])
    await wait_for_event(tried)
    assert (await host.refusal()).reason == "LOAD_FAILED"
    assert await host.health("", "readiness", "liveness") == [NOT_SERVING, NOT_SERVING, SERVING]


async def test_expert_is_ready_after_its_models_are_loaded(start_host: Start) -> None:
    started, release = threading.Event(), threading.Event()

    def slow(model_id: str, device: str) -> Handler:
        started.set()
        release.wait(5)
        return single(lambda inputs, parameters: {"text": "slow"})

    host = await start_host(slow)
    await wait_for_event(started)
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


async def test_description_changes_only_with_a_model(start_host: Start) -> None:
    host = await start_host(preload=())
    await host.until(SERVING)
    before = await host.describe()
    assert before.expert == "test"
    assert before.version == "0"
    assert [spec.name for spec in before.tasks] == ["saying"]
    assert list(before.load.loaded) == []
    unchanged = await host.describe(before.revision)
    assert unchanged.unchanged is True
    assert len(unchanged.tasks) == 0
    assert len(unchanged.models) == 0
    await host.infer()
    after = await host.describe(before.revision)
    assert after.unchanged is False
    assert after.revision != before.revision
    assert [card.state for card in after.models] == [MODEL_STATE_READY, MODEL_STATE_LOADABLE]
    assert list(after.load.loaded) == ["m"]
    assert after.models[0].p50.ToTimedelta() > timedelta()
    again = await host.describe(after.revision)
    assert again.unchanged is True
    assert list(again.load.loaded) == ["m"]


async def test_load_progress_is_described_and_streamed_to_waiting_calls(start_host: Start) -> None:
    started, release = threading.Event(), threading.Event()

    def slow(model_id: str, device: str) -> Handler:
        load_context.current().progress(0.25, "downloading 1 of 4 MB")
        started.set()
        release.wait(5)
        return single(lambda inputs, parameters: {"text": "slow"})

    host = await start_host(slow, preload=())
    before = await host.describe()
    call = host.infer(call_id="c")
    await wait_for_event(started)
    during = await host.describe(before.revision)
    assert during.unchanged
    (reported,) = during.load.loading
    assert reported.model == "m"
    assert reported.fraction == 0.25
    assert reported.message == "downloading 1 of 4 MB"
    progress: Any = host.stub.Progress(ProgressRequest(call_ids=["c"]), timeout=10)
    assert (await progress.read()).message == "downloading 1 of 4 MB"
    release.set()
    assert (await call).outputs["text"].text == "slow"
    assert not (await host.describe()).load.loading


async def test_evicted_model_is_reported_and_reloaded_on_demand(start_host: Start) -> None:
    host = await start_host(with_memory(2), with_memory(2), preload=("m",), memory_bytes=3)
    await host.until(SERVING, "m")
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    assert list((await host.describe()).load.loaded) == ["other"]
    await host.until(NOT_SERVING, "m")
    assert (await host.infer()).outputs["text"].text == "hello"
    reported = await host.describe()
    assert list(reported.load.loaded) == ["m"]
    assert {card.id: card.loaded_bytes for card in reported.models} == {"m": 2, "other": 2}


async def test_expert_is_not_alive_while_a_batch_is_stuck(start_host: Start) -> None:
    gate = Gate()
    host = await start_host(gate, device_seconds=0.1)
    call = asyncio.ensure_future(host.infer())
    await host.until(NOT_SERVING, "liveness")
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    gate.release.set()
    await call
    await host.until(SERVING, "liveness")


async def test_expert_is_not_alive_while_a_load_is_stuck(start_host: Start) -> None:
    release = threading.Event()

    def stuck(model_id: str, device: str) -> Handler:
        release.wait(10)
        return single(lambda inputs, parameters: {"text": "late"})

    host = await start_host(stuck, preload=["other"], device_seconds=0.1, load_seconds=0.1)
    call = asyncio.ensure_future(host.infer())
    await host.until(NOT_SERVING, "liveness")
    assert (await host.infer(model="other")).outputs["text"].text == "hello"
    release.set()
    assert (await call).outputs["text"].text == "late"
    await host.until(SERVING, "liveness")
