"""InferBatch of the expert host: items, their failures, and what they share with calls of Infer."""

import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from experts.host.active_calls import ActiveCall
from experts.host.app import serve
from experts.host.expert import read_expert
from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Media, Outputs, Parameters, RemoteHandler
from experts.host.settings import Settings
from experts.host.threads import ThreadPool
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, PRIORITY_BATCH, PRIORITY_INTERACTIVE
from services.common import call_context
from services.common.artifacts import INLINE_BYTES
from services.common.channel import MESSAGE_BYTES
from services.common.errors import FailedPrecondition, InvalidRequest
from tests.support.expert_host import SERVING, Batches, Gate, Start, loader_of, refusal_of, wait_for_event

ROOT = Path(__file__).parents[2]

UNKNOWN_PORT = pb.InferBatchItem(inputs={"no_such_port": Value(text="x")})


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    yield gate
    gate.release.set()


def texts(reply: pb.InferBatchResponse) -> list[str]:
    """Text of each item, or the reason of its failure."""
    return [
        result.failure.reason if result.HasField("failure") else result.outputs["text"].text for result in reply.results
    ]


async def test_items_run_as_one_batch_and_are_answered_in_order(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    first = asyncio.ensure_future(host.infer("first"))
    await wait_for_event(batching_model.entered)
    await batching_model.all_prepared(1)
    names = [f"t{number}" for number in range(20)]
    items = asyncio.ensure_future(host.infer_batch(*names))
    await batching_model.all_prepared(len(names))
    await host.until_waiting(len(names))
    batching_model.release.set()
    reply = await items
    await first
    assert texts(reply) == [name.upper() for name in names]
    assert [sorted(batch) for batch in batching_model.batches] == [["first"], sorted(names)]
    assert reply.revision == "1"


async def test_items_share_batches_with_calls_of_infer(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    first = asyncio.ensure_future(host.infer("first"))
    await wait_for_event(batching_model.entered)
    await batching_model.all_prepared(1)
    alone = asyncio.ensure_future(host.infer("alone"))
    await batching_model.all_prepared(1)
    together = asyncio.ensure_future(host.infer_batch("a", "b"))
    await batching_model.all_prepared(2)
    await host.until_waiting(3)
    batching_model.release.set()
    assert texts(await together) == ["A", "B"]
    assert (await alone).outputs["text"].text == "ALONE"
    await first
    assert [sorted(batch) for batch in batching_model.batches] == [["first"], ["a", "alone", "b"]]


async def test_items_with_faults_do_not_affect_the_others(start_host: Start, batching_model: Batches) -> None:
    batching_model.release.set()
    host = await start_host(batching_model)
    wrong_kind = pb.InferBatchItem(inputs={"text": Value(json="{}")})
    absent = pb.InferBatchItem(
        inputs={"text": Value(artifact=Artifact(sha256="0" * 64, media_type="text/plain", size_bytes=1))}
    )
    reply = await host.infer_batch("a", "poison", " ", "b", items=[UNKNOWN_PORT, wrong_kind, absent])
    assert texts(reply) == ["A", "MODEL_FAILED", "INVALID", "B", "INVALID", "INVALID", "ARTIFACT"]
    assert reply.results[4].failure.port == "no_such_port"
    assert reply.results[4].failure.remedy
    assert reply.results[5].failure.port == "text"
    assert not reply.results[1].outputs


async def test_failure_of_an_item_is_the_error_of_infer(start_host: Start, batching_model: Batches) -> None:
    batching_model.release.set()
    host = await start_host(batching_model)
    (result,) = (await host.infer_batch("poison")).results
    error = await host.refusal(text="poison")
    assert result.failure.code == error.code.value[0]
    assert result.failure.reason == error.reason
    assert result.failure.message == error.message
    assert result.failure.remedy == error.remedy


async def test_call_without_valid_items_succeeds_and_runs_nothing(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    assert texts(await host.infer_batch(items=[UNKNOWN_PORT, UNKNOWN_PORT])) == ["INVALID", "INVALID"]
    assert batching_model.batches == []


@pytest.mark.parametrize(
    ("fields", "code", "reason", "port"),
    [
        ({"task": "no-such"}, "NOT_FOUND", "TASK", ""),
        ({"model": "no-such"}, "NOT_FOUND", "MODEL", ""),
        ({"revision": "2"}, "FAILED_PRECONDITION", "REVISION", ""),
        ({"parameters_json": '{"times":9}'}, "INVALID_ARGUMENT", "INVALID", "parameters.times"),
    ],
)
async def test_errors_of_what_items_share_fail_the_call(
    start_host: Start, fields: dict[str, Any], code: str, reason: str, port: str
) -> None:
    host = await start_host()
    error = await refusal_of(host.infer_batch("a", "b", **fields))
    assert error.code.name == code
    assert error.reason == reason
    assert error.port == port
    assert error.remedy


async def test_parameters_apply_to_all_items(start_host: Start) -> None:
    host = await start_host()
    assert texts(await host.infer_batch("a", "b", parameters_json='{"times":2}')) == ["aa", "bb"]


async def test_call_without_items_is_invalid(start_host: Start) -> None:
    host = await start_host()
    error = await refusal_of(host.infer_batch())
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.port == "items"


@pytest.mark.parametrize(("priority", "limit"), [(PRIORITY_INTERACTIVE, 8), (PRIORITY_BATCH, 6)])
async def test_more_items_than_the_model_accepts_are_invalid(start_host: Start, priority: Any, limit: int) -> None:
    host = await start_host(max_waiting=8)
    assert texts(await host.infer_batch(*["a"] * limit, priority=priority)) == ["a"] * limit
    error = await refusal_of(host.infer_batch(*["a"] * (limit + 1), priority=priority))
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.reason == "TOO_LARGE"
    assert f"the call has {limit + 1} items, the model accepts {limit} calls of this priority" in error.message
    assert f"send at most {limit} at a time" in error.remedy
    assert "EXPERT_MAX_WAITING" in error.remedy


async def test_items_with_too_many_bytes_together_are_invalid(start_host: Start) -> None:
    host = await start_host(max_input_bytes=10)
    assert texts(await host.infer_batch("12345", "12345")) == ["12345", "12345"]
    error = await refusal_of(host.infer_batch("12345", "123456"))
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.reason == "TOO_LARGE"
    assert "11 bytes in total, the limit is 10" in error.message
    assert "EXPERT_MAX_INPUT_BYTES" in error.remedy


async def test_item_that_is_too_large_alone_fails_alone(start_host: Start) -> None:
    host = await start_host(max_input_bytes=10)
    assert texts(await host.infer_batch("12345", "x" * 11)) == ["12345", "TOO_LARGE"]


async def test_all_items_are_admitted_while_one_more_call_would_be(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, max_waiting=4)
    first = host.infer_batch("a", "b", "c")
    await wait_for_event(gate.entered)
    second = asyncio.ensure_future(host.infer_batch("d", "e", "f", "g"))
    await host.until_waiting(4)
    gate.release.set()
    assert texts(await first) == ["a", "b", "c"]
    assert texts(await second) == ["d", "e", "f", "g"]


async def test_items_are_refused_while_no_further_call_is_accepted(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, max_waiting=4)
    first = host.infer_batch("a", "b", "c", "d")
    await wait_for_event(gate.entered)
    error = await refusal_of(host.infer_batch("e", "f", "g"))
    assert error.code.name == "RESOURCE_EXHAUSTED"
    assert error.reason == "OVERLOADED"
    assert "m has 4 of at most 4 calls and cannot accept 3 more" in error.message
    assert error.retry_after
    load = (await host.describe()).load
    assert load.waiting + load.running == 4
    gate.release.set()
    await first
    assert texts(await host.infer_batch("e", "f", "g")) == ["e", "f", "g"]


async def test_cancelled_call_frees_its_capacity_and_notifies_the_model(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, max_waiting=2)
    call = host.infer_batch("a", "b")
    await wait_for_event(gate.entered)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await wait_for_event(gate.noticed)
    following = asyncio.ensure_future(host.infer_batch("c", "d"))
    gate.release.set()
    assert texts(await following) == ["c", "d"]


async def test_waiting_items_of_a_cancelled_call_do_not_run(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    first = asyncio.ensure_future(host.infer("first"))
    await wait_for_event(batching_model.entered)
    await batching_model.all_prepared(1)
    call = host.infer_batch("a", "b")
    await batching_model.all_prepared(2)
    call.cancel()
    while (await host.describe()).load.waiting:
        pass
    batching_model.release.set()
    await first
    await host.infer("next")
    assert batching_model.batches == [["first"], ["next"]]


async def test_call_past_its_deadline_does_not_run(start_host: Start, batching_model: Batches) -> None:
    host = await start_host(batching_model)
    first = asyncio.ensure_future(host.infer("first"))
    await wait_for_event(batching_model.entered)
    await batching_model.all_prepared(1)
    error = await refusal_of(host.infer_batch("a", "b", timeout=0.2))
    assert error.code.name == "DEADLINE_EXCEEDED"
    while (await host.describe()).load.waiting:  # the server's deadline is a little later than the client's
        pass
    batching_model.release.set()
    await first
    await host.infer("next")
    assert batching_model.batches == [["first"], ["next"]]


async def test_call_over_the_time_limit_fails(start_host: Start, gate: Gate) -> None:
    host = await start_host(gate, call_seconds=0.5)
    error = await refusal_of(host.infer_batch("a", "b"))
    assert error.code.name == "DEADLINE_EXCEEDED"
    assert error.reason == "DEADLINE"
    await wait_for_event(gate.noticed)


async def test_interactive_call_runs_before_items_of_background_priority(
    start_host: Start, batching_model: Batches
) -> None:
    host = await start_host(batching_model)
    calls = [asyncio.ensure_future(host.infer("first"))]
    await wait_for_event(batching_model.entered)
    await batching_model.all_prepared(1)
    calls.append(asyncio.ensure_future(host.infer_batch("b1", "b2", priority=PRIORITY_BATCH)))
    await batching_model.all_prepared(2)
    calls.append(asyncio.ensure_future(host.infer("now", priority=PRIORITY_INTERACTIVE)))
    await batching_model.all_prepared(1)
    await host.until_waiting(3)
    batching_model.release.set()
    await asyncio.gather(*calls)
    assert batching_model.batches[1] == ["now"]


class Steps(Handler):
    """A model without batches that waits for a permit before each item."""

    batching = UNBATCHED

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)

    def __call__(self, model_id: str, device: str) -> Handler:
        return self

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        call.progress(0.9, "reported by the model")
        assert self.permits.acquire(timeout=5)
        return items

    def finish(self, raw: str) -> Outputs:
        return {"text": raw, "image": Media(b"x", "image/png", "x.png")}


async def test_progress_is_the_share_of_items_that_have_ended(start_host: Start) -> None:
    model = Steps()
    host = await start_host(model)
    await host.until(SERVING)
    call = asyncio.ensure_future(host.infer_batch("a", "b", "c", items=[UNKNOWN_PORT], call_id="c-1"))
    await host.until_waiting(2)
    steps = []
    async for step in host.stub.Progress(pb.ProgressRequest(call_ids=["c-1"]), timeout=10):
        steps.append((step.fraction, step.message))
        model.permits.release()
    assert steps[:3] == [(0.25, "1 of 4 items"), (0.5, "2 of 4 items"), (0.75, "3 of 4 items")]
    assert texts(await call) == ["a", "b", "c", "INVALID"]


async def test_batch_may_run_while_its_items_are_still_being_queued(
    start_host: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = ThreadPool.post

    def post_and_wait(threads: ThreadPool, job: Callable[[], None]) -> None:
        """Lets the event loop continue only after the job has run."""
        ended = threading.Event()

        def run() -> None:
            job()
            ended.set()

        post(threads, run)
        if threading.current_thread() is threading.main_thread():
            assert ended.wait(5)

    monkeypatch.setattr(ThreadPool, "post", post_and_wait)
    gate.release.set()
    host = await start_host(gate)
    assert texts(await host.infer_batch("a", "b")) == ["a", "b"]


async def test_progress_includes_the_load_of_the_model(start_host: Start, gate: Gate) -> None:
    loading = threading.Event()

    def load(model_id: str, device: str) -> Handler:
        assert loading.wait(5)
        return gate

    gate.release.set()
    host = await start_host(load, preload=())
    call = asyncio.ensure_future(host.infer_batch("a", call_id="c-1"))
    while not (await host.describe()).load.loading:
        pass
    messages = []
    async for step in host.stub.Progress(pb.ProgressRequest(call_ids=["c-1"]), timeout=10):
        messages.append(step.message)
        loading.set()
    assert messages[0] == "loading the model"
    assert texts(await call) == ["a"]


async def test_invalid_items_are_reported_after_the_load(
    start_host: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = []
    monkeypatch.setattr(ActiveCall, "progress", lambda call, fraction, message="": messages.append(message))
    gate.release.set()
    host = await start_host(gate, preload=())
    assert texts(await host.infer_batch("a", items=[UNKNOWN_PORT])) == ["a", "INVALID"]
    assert messages == ["loading the model", "1 of 2 items", "2 of 2 items"]


async def test_failed_load_fails_the_call(start_host: Start) -> None:
    def load(model_id: str, device: str) -> Handler:
        raise FailedPrecondition("no weights", remedy="download them")

    host = await start_host(load, preload=())
    error = await refusal_of(host.infer_batch("a", "b"))
    assert error.code.name == "FAILED_PRECONDITION"
    assert error.reason == "LOAD_FAILED"


async def test_media_of_items_are_fetched_and_stored(start_host: Start) -> None:
    def invert(inputs: Inputs, parameters: Parameters) -> Outputs:
        content = inputs["image"].content[::-1]
        return {"text": inputs["text"], "image": Media(content, "image/png", "x.png")}

    host = await start_host(loader_of(invert))
    contents = [b"one", b"two", b"three"]
    files = [await host.store.put("default", each, media_type="image/png", name="x.png") for each in contents]
    items = [pb.InferBatchItem(inputs={"text": Value(text="t"), "image": Value(artifact=file)}) for file in files]
    reply = await host.infer_batch(items=items)
    digests = [result.outputs["image"].artifact.sha256 for result in reply.results]
    assert [await host.store.get("default", digest) for digest in digests] == [each[::-1] for each in contents]


async def test_outputs_of_many_items_fit_into_one_message(start_host: Start) -> None:
    host = await start_host(loader_of(lambda inputs, parameters: {"text": "x" * INLINE_BYTES}), max_waiting=400)
    reply = await host.infer_batch(*["a"] * 400, timeout=60)
    assert reply.ByteSize() < MESSAGE_BYTES
    assert {result.outputs["text"].artifact.size_bytes for result in reply.results} == {INLINE_BYTES}


async def test_long_outputs_of_few_items_are_inline(start_host: Start) -> None:
    host = await start_host(loader_of(lambda inputs, parameters: {"text": "x" * INLINE_BYTES}))
    reply = await host.infer_batch("a", "b")
    assert [len(text) for text in texts(reply)] == [INLINE_BYTES, INLINE_BYTES]


def add_up(inputs: Inputs, parameters: Parameters) -> Outputs:
    return {"text": str(sum(range(50_000)))}


async def test_usage_is_that_of_all_items(start_host: Start) -> None:
    host = await start_host(loader_of(add_up))
    await host.until(SERVING)
    single = (await host.infer()).usage.pool_seconds["cpu"]
    usage = (await host.infer_batch(*["a"] * 20)).usage
    assert list(usage.pool_seconds) == ["cpu"]
    assert usage.pool_seconds["cpu"] > 2 * single
    assert usage.busy.ToTimedelta().total_seconds() > 2 * single


async def test_reply_has_the_trailing_metadata_of_infer(start_host: Start) -> None:
    host = await start_host()
    call = host.infer_batch("a", model="m")
    await call
    assert dict(await call.trailing_metadata()).keys() == {"expert-queue", "expert-loaded", "expert-free-bytes"}


async def test_failed_call_has_usage_in_its_trailing_metadata(start_host: Start) -> None:
    host = await start_host(call_seconds=30)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await host.infer_batch()
    assert {"expert-queue", "expert-used"} <= dict(caught.value.trailing_metadata() or ()).keys()


class Remote(RemoteHandler):
    """A model in another service: answers once `count` calls run at the same time; refuses private data."""

    def __init__(self, count: int) -> None:
        self._together = asyncio.Barrier(count)

    def __call__(self, model_id: str, device: str) -> RemoteHandler:
        return self

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    def infer(self, item: str, call: Call) -> Awaitable[str]:
        return self._answer(item)

    async def _answer(self, item: str) -> str:
        await self._together.wait()
        if item == "invalid":
            raise InvalidRequest("not accepted", port="text", remedy="send other text")
        if call_context.current().policy == DATA_POLICY_LOCAL:
            raise FailedPrecondition("the data must stay here", reason="POLICY", remedy="choose an internal model")
        return f"{call_context.current().tenant}: {item}"

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


async def test_items_of_a_remote_model_run_at_the_same_time_with_their_caller(start_host: Start) -> None:
    host = await start_host(Remote(3))
    assert texts(await host.infer_batch("a", "invalid", "c", tenant="acme")) == ["acme: a", "INVALID", "acme: c"]


async def test_data_policy_applies_to_every_item(start_host: Start) -> None:
    host = await start_host(Remote(2))
    reply = await host.infer_batch("a", "b", policy=DATA_POLICY_LOCAL)
    assert texts(reply) == ["POLICY", "POLICY"]


async def test_items_of_a_concurrent_model_do_not_wait_for_each_other(start_host: Start) -> None:
    class Concurrent(Steps):
        concurrent = True
        together = threading.Barrier(2, timeout=5)

        def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
            self.together.wait()
            return items

    host = await start_host(Concurrent())
    assert texts(await host.infer_batch("a", "b")) == ["a", "b"]


async def test_items_run_in_a_worker_process(start_host: Start) -> None:
    host = await start_host(workers="process")
    await host.until(SERVING)
    assert texts(await host.infer_batch("a", "b")) == ["a", "b"]


async def test_readme_program_classifies_texts(tmp_path: Path) -> None:
    readme = (ROOT / "experts" / "host" / "README.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?InferBatch.*?)```", readme, re.DOTALL)
    values: Mapping[str, Any] = {"ARTIFACTS_URL": tmp_path.as_uri(), "allowed": "vaderSentiment"}
    async with serve(read_expert("experts.lite"), Settings(listen="127.0.0.1:0", **values)) as running:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program.replace("50051", str(running.port))),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        stdout, _ = await process.communicate()
    assert process.returncode == 0
    assert stdout.decode().splitlines() == [
        "'I love this.': positive",
        "'I hate this.': negative",
        "'': input text contains no text; send some text",
    ]
