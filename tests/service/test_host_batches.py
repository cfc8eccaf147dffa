import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from experts.host.handler import Call, Outputs, Parameters
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, PRIORITY_INTERACTIVE
from services.common import errors
from tests.support.expert_host import Batches, Host, Start, wait_for_event


async def start_blocked(host: Host, batching_model: Batches, *texts: str, **fields: Any) -> "list[asyncio.Future[Any]]":
    """Starts a call that the model blocks, and others that wait behind it, in that order."""
    calls = [asyncio.ensure_future(host.infer("first"))]
    await wait_for_event(batching_model.entered)
    await batching_model.all_prepared(1)
    for text in texts:
        calls.append(asyncio.ensure_future(host.infer(text, **fields)))
        await batching_model.all_prepared(1)
    await host.until_waiting(len(texts))
    return calls


def texts(replies: Sequence[Any]) -> list[Any]:
    return [type(reply) if isinstance(reply, BaseException) else reply.outputs["text"].text for reply in replies]


async def test_waiting_calls_run_as_one_batch(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    calls = await start_blocked(host, batching_model, "a", "b", "c")
    batching_model.release.set()
    replies = await asyncio.gather(*calls)
    assert texts(replies) == ["FIRST", "A", "B", "C"]
    assert [sorted(batch) for batch in batching_model.batches] == [["first"], ["a", "b", "c"]]
    assert replies[1].usage.busy.ToTimedelta() < replies[1].usage.elapsed.ToTimedelta()


async def test_calls_with_different_parameters_run_in_separate_batches(
    start_host: Start, batching_model: Batches
) -> None:
    host = await start_host(batching_model)
    calls = await start_blocked(host, batching_model, "a", "b")
    calls += [asyncio.ensure_future(host.infer("other", parameters_json='{"times":2}'))]
    calls += [asyncio.ensure_future(host.infer("same", parameters_json='{"times":1}'))]
    await batching_model.all_prepared(2)
    await host.until_waiting(4)
    batching_model.release.set()
    await asyncio.gather(*calls)
    assert sorted(map(sorted, batching_model.batches)) == [["a", "b", "same"], ["first"], ["other"]]


async def test_model_may_batch_calls_by_its_own_key(start_host: Start) -> None:
    """Calls with different parameters share a batch, and calls with the same parameters do not."""

    class BatchesByLength(Batches):
        def batch_key(self, item: str, parameters: Parameters) -> int:
            return len(item)

    model = BatchesByLength()
    host = await start_host(model)
    calls = await start_blocked(host, model, "a", "long")
    calls += [asyncio.ensure_future(host.infer("b", parameters_json='{"times":2}'))]
    await model.all_prepared(1)
    await host.until_waiting(3)
    model.release.set()
    await asyncio.gather(*calls)
    assert sorted(map(sorted, model.batches)) == [["a", "b"], ["first"], ["long"]]


@pytest.mark.parametrize("cancelled", [[1], [3], [1, 2]])
async def test_caller_that_leaves_during_a_batch_does_not_affect_peers(
    start_host: Start, batching_model: Batches, cancelled: list[int]
) -> None:
    host = await start_host(batching_model)
    calls = [host.infer(text) for text in ("a", "b", "c", "d")]
    await wait_for_event(batching_model.entered)
    await batching_model.all_prepared(4)
    for number in cancelled:
        calls[number].cancel()
    batching_model.release.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    expected = [asyncio.CancelledError if n in cancelled else text for n, text in enumerate("ABCD")]
    assert texts(outcomes) == expected
    assert texts([await host.infer("next")]) == ["NEXT"]


async def test_only_the_call_that_raises_fails(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    calls = await start_blocked(host, batching_model, "a", "poison", "c")
    batching_model.release.set()
    first, a, poison, c = await asyncio.gather(*calls, return_exceptions=True)
    assert texts([first, a, c]) == ["FIRST", "A", "C"]
    assert isinstance(poison, grpc.aio.AioRpcError)
    assert errors.from_rpc(poison).reason == "MODEL_FAILED"


async def test_interactive_call_runs_before_background_calls(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    calls = await start_blocked(host, batching_model, "b1", "b2", "b3", priority=PRIORITY_BATCH)
    calls += [asyncio.ensure_future(host.infer("now", priority=PRIORITY_INTERACTIVE))]
    await host.until_waiting(4)
    await batching_model.all_prepared(1)
    batching_model.release.set()
    await asyncio.gather(*calls)
    assert batching_model.batches[1] == ["now"]


async def test_background_calls_leave_capacity_for_interactive_calls(
    start_host: Start, batching_model: Batches
) -> None:
    host = await start_host(batching_model, max_waiting=4)
    calls = await start_blocked(host, batching_model, "b1", "b2", priority=PRIORITY_BATCH)
    error = await host.refusal(text="b3", priority=PRIORITY_BATCH)
    assert error.code.name == "RESOURCE_EXHAUSTED"
    assert error.reason == "OVERLOADED"
    calls.append(asyncio.ensure_future(host.infer("now")))
    await batching_model.all_prepared(1)
    batching_model.release.set()
    assert texts(await asyncio.gather(*calls)) == ["FIRST", "B1", "B2", "NOW"]


async def test_call_past_its_deadline_does_not_run(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    calls = await start_blocked(host, batching_model)
    error = await host.refusal(text="late", timeout=0.2)
    assert error.code.name == "DEADLINE_EXCEEDED"
    calls.append(asyncio.ensure_future(host.infer("in time")))
    await batching_model.all_prepared(2)
    batching_model.release.set()
    assert texts(await asyncio.gather(*calls)) == ["FIRST", "IN TIME"]
    assert batching_model.batches == [["first"], ["in time"]]


class Overlapping(Batches):
    """A model that prepares and finishes only while the device runs another call."""

    def __init__(self) -> None:
        super().__init__()
        self.release.set()
        self.read, self.second, self.written = threading.Event(), threading.Event(), threading.Event()

    def prepare(self, inputs: Any, parameters: Any) -> str:
        if inputs["text"] == "second":
            self.read.set()
        return super().prepare(inputs, parameters)

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        if "first" in items:
            self.entered.set()
            assert self.read.wait(5), "the second is read while the first runs"
        else:
            self.second.set()
            assert self.written.wait(5), "the first is written while the second runs"
        return super().run(items, call)

    def finish(self, raw: str) -> Outputs:
        if raw == "FIRST":
            assert self.second.wait(5)
            self.written.set()
        return super().finish(raw)


async def test_input_and_output_are_processed_while_the_device_runs_other_calls(start_host: Start) -> None:
    batching_model = Overlapping()
    host = await start_host(batching_model)
    first = asyncio.ensure_future(host.infer("first"))
    await wait_for_event(batching_model.entered)
    assert texts(await asyncio.gather(first, host.infer("second"))) == ["FIRST", "SECOND"]
