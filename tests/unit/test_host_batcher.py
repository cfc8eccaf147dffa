import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from datetime import timedelta
from math import inf
from typing import Any

import pytest

from experts.host.active_calls import ActiveCall, ActiveCalls
from experts.host.batch_composer import BatchComposer, QueuedCall
from experts.host.batcher import MAX_RETRY_SECONDS, MIN_RETRY_SECONDS, BatchedResult, Batcher
from experts.host.expert import Offer
from experts.host.handler import Batching, Call, Handler
from experts.host.loaded_model import LoadedModel
from experts.host.metering import Meter, Pool
from experts.host.model_manager import ModelSlot
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import DeadlineExceeded, InvalidRequest, ModelFailed, Overloaded
from tests.support.clock import Clock

ErrorOf = Callable[[Sequence[Any]], BaseException | None]


class Model(Handler):
    """Returns its items in capitals, raises the given errors, and blocks the given batches until released."""

    batching = Batching(items=8)

    def __init__(self, error_of: ErrorOf = lambda items: None) -> None:
        self.batches: list[list[Any]] = []
        self.gates: dict[int, threading.Event] = {}
        self.entered = threading.Event()
        self.calls: list[Call] = []
        self._error_of = error_of

    def prepare(self, inputs: Any, parameters: Any) -> Any: ...

    def run(self, items: Sequence[Any], call: Call) -> Sequence[Any]:
        self.batches.append(list(items))
        self.calls.append(call)
        if gate := self.gates.get(len(self.batches)):
            self.entered.set()
            assert gate.wait(5)
        if error := self._error_of(items):
            raise error
        return [item.upper() for item in items]

    def finish(self, raw: Any) -> Any: ...

    def block(self, *batches: int) -> None:
        """Blocks batches, counted from 1."""
        self.gates = {number: threading.Event() for number in batches}

    async def wait_blocked(self) -> None:
        """Waits until a blocked batch has started."""
        assert await asyncio.to_thread(self.entered.wait, 5)
        self.entered.clear()


class Device:
    """A batch on an asynchronous device, which finishes when it is released."""

    def __init__(self, model: "AsynchronousModel", items: Sequence[Any]) -> None:
        self.released = threading.Event()
        self._model, self._items = model, items

    def wait(self) -> None:
        assert self.released.wait(5)

    def fetch(self) -> Sequence[Any]:
        assert self.released.is_set()
        self._model.steps.append(("fetch", list(self._items)))
        if error := self._model.fetch_error_of(self._items):
            raise error
        return [item.upper() for item in self._items]


class AsynchronousModel(Model):
    """Records the order in which its batches are launched and fetched."""

    asynchronous = True

    def __init__(self, error_of: ErrorOf = lambda items: None, fetch_error_of: ErrorOf = lambda items: None) -> None:
        super().__init__(error_of)
        self.fetch_error_of = fetch_error_of
        self.steps: list[tuple[str, list[Any]]] = []
        self.launched: list[Device] = []

    def launch(self, items: Sequence[Any], call: Call) -> Device:
        self.steps.append(("launch", list(items)))
        self.calls.append(call)
        if error := self._error_of(items):
            raise error
        self.launched.append(Device(self, items))
        return self.launched[-1]

    def release_all(self) -> None:
        """Lets all batches finish, and those that are launched later."""
        for device in self.launched:
            device.released.set()
        self.launch_held, self.launch = self.launch, self._launch_released  # type: ignore[method-assign]

    def _launch_released(self, items: Sequence[Any], call: Call) -> Device:
        device = self.launch_held(items, call)
        device.released.set()
        return device


class Manager:
    """The part of a model manager that a model notifies when it is unloaded."""

    def notify_change(self) -> None: ...


class Callers:
    """Calls of one model, by their items."""

    def __init__(self, batcher: Batcher, stack: ExitStack) -> None:
        self.batcher = batcher
        self.calls: dict[str, ActiveCall] = {}
        """By item."""
        self._stack, self._all = stack, ActiveCalls()

    def submit(self, model: LoadedModel, item: str, *, deadline: float = inf) -> "asyncio.Task[BatchedResult]":
        self.calls[item] = call = self._stack.enter_context(self._all.track("default", "", deadline=deadline))
        self._stack.enter_context(self.batcher.admit())
        return asyncio.create_task(self._result(model, item, call))

    async def submit_together(self, model: LoadedModel, *items: str) -> "list[asyncio.Task[BatchedResult]]":
        """Submits items while the thread is occupied, and waits until it has taken what it may."""
        gate = threading.Event()

        def occupy() -> None:
            gate.wait(5)

        self.batcher.thread.post(occupy)
        tasks = [self.submit(model, item) for item in items]
        for _ in range(3):
            await asyncio.sleep(0)
        gate.set()
        await self.thread_is_idle()
        return tasks

    async def thread_is_idle(self) -> None:
        """Waits until the thread has run all jobs that are queued now."""
        await self.batcher.thread.run(lambda: None)

    async def _result(self, model: LoadedModel, item: str, call: ActiveCall) -> BatchedResult:
        return await self.batcher.submit(QueuedCall(model, "key", item, 1, call, copy_context()))


@pytest.fixture
def evictions() -> list[str]:
    """One entry for each time the batcher freed memory."""
    return []


@pytest.fixture
def batcher(evictions: list[str]) -> Iterator[Batcher]:
    def free_memory() -> None:
        evictions.append("freed")

    batcher = Batcher("m", limit=20, composer=BatchComposer(background_seconds=0.05))
    batcher.free_memory = free_memory
    yield batcher
    batcher.close()


@pytest.fixture
async def callers(batcher: Batcher) -> AsyncIterator[Callers]:
    with ExitStack() as stack:
        yield Callers(batcher, stack)


async def submit_behind_blocked_batch(
    callers: Callers, model: Model, loaded: LoadedModel, *items: str, block: Sequence[int] = (1,)
) -> "list[asyncio.Task[BatchedResult]]":
    """Returns the task of a call whose batch is blocked, and the tasks of the items that wait for it."""
    model.block(*block)
    first = callers.submit(loaded, "first")
    await model.wait_blocked()
    tasks = [callers.submit(loaded, item) for item in items]
    for _ in range(3):
        await asyncio.sleep(0)
    return [first, *tasks]


def raws(results: Sequence[BatchedResult | BaseException]) -> list[Any]:
    return [result.raw if isinstance(result, BatchedResult) else type(result) for result in results]


@pytest.mark.parametrize(("limit", "background", "admitted"), [(2, False, 2), (20, True, 15), (1, True, 1)])
def test_full_batcher_refuses_call_with_retry_delay(limit: int, background: bool, admitted: int) -> None:
    batcher = Batcher("m", limit=limit, composer=BatchComposer(background_seconds=0.05))
    with ExitStack() as stack:
        for _ in range(admitted):
            stack.enter_context(batcher.admit(background=background))
        with pytest.raises(Overloaded) as caught, batcher.admit(background=background):
            pass
        assert caught.value.retry_after
        assert timedelta(seconds=MIN_RETRY_SECONDS) <= caught.value.retry_after <= timedelta(seconds=MAX_RETRY_SECONDS)
        assert batcher.waiting == admitted
        assert batcher.is_idle == (admitted == 1)
    with batcher.admit():
        assert batcher.waiting == 1
        assert batcher.is_idle
    batcher.thread.close()


def test_several_calls_are_admitted_together_until_the_limit_is_reached() -> None:
    batcher = Batcher("m", limit=4, composer=BatchComposer(background_seconds=0.05))
    with batcher.admit(3), batcher.admit(4):
        assert batcher.present == 7
        with pytest.raises(Overloaded), batcher.admit():
            pass
    assert batcher.present == 0
    batcher.thread.close()


async def test_calls_that_arrive_during_a_batch_form_the_next(callers: Callers) -> None:
    model = Model()
    loaded = LoadedModel(model)
    tasks = await submit_behind_blocked_batch(callers, model, loaded, "a", "b", "c")
    assert callers.batcher.running == 1
    assert callers.batcher.waiting == 3
    assert callers.batcher.has_multiple_calls
    model.gates[1].set()
    assert raws(await asyncio.gather(*tasks)) == ["FIRST", "A", "B", "C"]
    assert model.batches == [["first"], ["a", "b", "c"]]
    ran = await tasks[1]
    assert ran.share == pytest.approx(ran.seconds / 3)


async def test_cancelled_waiting_call_is_dropped_and_its_peers_run(callers: Callers) -> None:
    model = Model()
    loaded = LoadedModel(model)
    tasks = await submit_behind_blocked_batch(callers, model, loaded, "a", "b", "c")
    callers.calls["b"].end()
    tasks[2].cancel()
    model.gates[1].set()
    assert raws(await asyncio.gather(*tasks, return_exceptions=True)) == ["FIRST", "A", asyncio.CancelledError, "C"]
    assert model.batches == [["first"], ["a", "c"]]


@pytest.mark.parametrize("cancelled", [["a"], ["c"], ["a", "b"]])
async def test_call_cancelled_during_its_batch_does_not_affect_peers(callers: Callers, cancelled: list[str]) -> None:
    model = Model()
    loaded = LoadedModel(model)
    waiting = await submit_behind_blocked_batch(callers, model, loaded, "a", "b", "c", block=(1, 2))
    tasks = dict(zip(("first", "a", "b", "c"), waiting, strict=True))
    model.gates[1].set()
    await model.wait_blocked()
    for name in cancelled:
        tasks[name].cancel()
        callers.calls[name].end()
    assert not model.calls[-1].cancelled
    model.gates[2].set()
    remaining = [name for name in "abc" if name not in cancelled]
    assert raws(await asyncio.gather(*(tasks[name] for name in remaining))) == [name.upper() for name in remaining]
    assert (await callers.submit(loaded, "next")).raw == "NEXT"


async def test_batch_is_cancelled_when_all_its_callers_have_left(callers: Callers) -> None:
    model = Model()
    tasks = await submit_behind_blocked_batch(callers, model, LoadedModel(model))
    assert not model.calls[0].cancelled
    callers.calls["first"].end()
    assert model.calls[0].cancelled
    model.gates[1].set()
    await asyncio.gather(*tasks)


async def test_call_past_its_deadline_fails_without_running(callers: Callers) -> None:
    model = Model()
    loaded = LoadedModel(model)
    tasks = await submit_behind_blocked_batch(callers, model, loaded, "a")
    late = callers.submit(loaded, "late", deadline=time.monotonic())
    await asyncio.sleep(0)
    model.gates[1].set()
    assert raws(await asyncio.gather(*tasks, late, return_exceptions=True)) == ["FIRST", "A", DeadlineExceeded]
    assert model.batches == [["first"], ["a"]]


@pytest.mark.parametrize(
    "error", [ValueError("bad"), InvalidRequest("dark"), SystemExit(1), asyncio.CancelledError()], ids=repr
)
async def test_only_the_call_that_raises_fails(callers: Callers, error: BaseException) -> None:
    model = Model(lambda items: error if "poison" in items else None)
    tasks = await submit_behind_blocked_batch(callers, model, LoadedModel(model), "a", "poison", "c")
    model.gates[1].set()
    expected = type(error) if isinstance(error, Exception) else RuntimeError
    assert raws(await asyncio.gather(*tasks, return_exceptions=True)) == ["FIRST", "A", expected, "C"]
    assert model.batches == [["first"], ["a", "poison", "c"], ["a"], ["poison"], ["c"]]
    assert callers.batcher.running == 0


async def test_too_few_results_fail_the_call(callers: Callers) -> None:
    model = Model()
    model.run = lambda items, call: []  # type: ignore[method-assign]
    with pytest.raises(ModelFailed, match="0 results for 1 inputs"):
        await callers.submit(LoadedModel(model), "a")


async def test_batch_that_runs_out_of_memory_is_halved_after_memory_is_freed(
    callers: Callers, evictions: list[str]
) -> None:
    model = Model(lambda items: MemoryError() if len(items) > 2 else None)
    loaded = LoadedModel(model)
    tasks = await submit_behind_blocked_batch(callers, model, loaded, "a", "b", "c", "d")
    model.gates[1].set()
    assert raws(await asyncio.gather(*tasks)) == ["FIRST", "A", "B", "C", "D"]
    assert model.batches[1:] == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"]]
    assert evictions == ["freed"]


async def test_item_too_large_for_memory_fails_alone_on_the_second_attempt(
    callers: Callers, evictions: list[str]
) -> None:
    model = Model(lambda items: MemoryError() if "huge" in items else None)
    tasks = await submit_behind_blocked_batch(callers, model, LoadedModel(model), "a", "huge")
    model.gates[1].set()
    assert raws(await asyncio.gather(*tasks, return_exceptions=True)) == ["FIRST", "A", MemoryError]
    assert model.batches[1:] == [["a", "huge"], ["a"], ["huge"]]
    assert evictions == ["freed"]


async def test_thread_survives_an_error_while_memory_is_freed(callers: Callers) -> None:
    def fail() -> None:
        raise TimeoutError

    model = Model(lambda items: MemoryError() if "huge" in items else None)
    callers.batcher.free_memory = fail
    loaded = LoadedModel(model)
    with pytest.raises(MemoryError):
        await callers.submit(loaded, "huge")
    assert (await callers.submit(loaded, "a")).raw == "A"


async def test_invalid_batch_limits_fail_only_the_calls_of_that_model(callers: Callers) -> None:
    model, invalid = Model(), Model()
    invalid.batching = "many"  # type: ignore[assignment]
    loaded = LoadedModel(model)
    with pytest.raises(AttributeError):
        await callers.submit(LoadedModel(invalid), "a")
    assert (await callers.submit(loaded, "a")).raw == "A"


async def test_run_alone_retries_once_after_freeing_memory(callers: Callers, evictions: list[str]) -> None:
    model = Model(lambda items: MemoryError() if not evictions else None)
    with ActiveCalls().track("default", "") as call:
        assert callers.batcher.run_alone(LoadedModel(model), "a", 1, call).raw == "A"
    assert model.batches == [["a"], ["a"]]
    assert evictions == ["freed"]


async def test_run_alone_does_not_run_a_cancelled_call(callers: Callers) -> None:
    model = Model()
    with ActiveCalls().track("default", "") as call:
        pass
    with pytest.raises(asyncio.CancelledError):
        callers.batcher.run_alone(LoadedModel(model), "a", 1, call)
    assert model.batches == []


async def test_busy_since_is_set_only_while_a_batch_runs(callers: Callers) -> None:
    model = Model()
    assert callers.batcher.busy_since is None
    tasks = await submit_behind_blocked_batch(callers, model, LoadedModel(model))
    since = callers.batcher.busy_since
    assert since is not None
    assert since <= time.monotonic()
    model.gates[1].set()
    await asyncio.gather(*tasks)
    assert callers.batcher.busy_since is None


async def test_as_large_a_batch_is_launched_before_the_last_one_is_fetched(callers: Callers) -> None:
    model = AsynchronousModel()
    loaded = LoadedModel(model)
    tasks = await callers.submit_together(loaded, "a", "b")
    tasks += await callers.submit_together(loaded, "c", "d")
    assert model.steps == [("launch", ["a", "b"]), ("launch", ["c", "d"])]
    assert callers.batcher.running == 4
    model.release_all()
    assert raws(await asyncio.gather(*tasks)) == ["A", "B", "C", "D"]
    assert model.steps[2:] == [("fetch", ["a", "b"]), ("fetch", ["c", "d"])]
    assert callers.batcher.running == 0


async def test_smaller_batch_is_launched_when_the_device_has_finished_and_before_the_fetch(callers: Callers) -> None:
    model = AsynchronousModel()
    loaded = LoadedModel(model)
    tasks = await callers.submit_together(loaded, "a", "b")
    tasks += await callers.submit_together(loaded, "c")
    assert model.steps == [("launch", ["a", "b"])]
    model.release_all()
    await asyncio.gather(*tasks)
    assert model.steps[1:] == [("launch", ["c"]), ("fetch", ["a", "b"]), ("fetch", ["c"])]


async def test_at_most_two_batches_are_on_the_device(callers: Callers) -> None:
    model = AsynchronousModel()
    loaded = LoadedModel(model)
    tasks = [task for item in "abcd" for task in await callers.submit_together(loaded, item)]
    assert model.steps == [("launch", ["a"]), ("launch", ["b"])]
    model.release_all()
    assert raws(await asyncio.gather(*tasks)) == ["A", "B", "C", "D"]
    assert model.steps[2:4] == [("launch", ["c", "d"]), ("fetch", ["a"])]


async def test_calls_of_other_batch_keys_follow_when_nothing_is_on_the_device(callers: Callers) -> None:
    model, other = AsynchronousModel(), Model()
    loaded, other_loaded = LoadedModel(model), LoadedModel(other)
    tasks = await callers.submit_together(loaded, "a", "b", "c")
    tasks += await callers.submit_together(other_loaded, "x")
    tasks += await callers.submit_together(loaded, "d")
    model.release_all()
    assert raws(await asyncio.gather(*tasks)) == ["A", "B", "C", "X", "D"]
    assert other.batches == [["x"]]


@pytest.mark.parametrize("step", ["launch", "fetch"])
async def test_error_of_a_launched_batch_fails_only_the_call_that_causes_it(callers: Callers, step: str) -> None:
    def error_of(items: Sequence[Any]) -> Exception | None:
        return ValueError("bad") if "poison" in items else None

    model = AsynchronousModel(**{"error_of" if step == "launch" else "fetch_error_of": error_of})
    loaded = LoadedModel(model)
    tasks = await callers.submit_together(loaded, "a")
    tasks += await callers.submit_together(loaded, "b", "poison")
    tasks += await callers.submit_together(loaded, "c")
    model.release_all()
    assert raws(await asyncio.gather(*tasks, return_exceptions=True)) == ["A", "B", ValueError, "C"]
    assert callers.batcher.running == 0
    assert callers.batcher.busy_since is None


@pytest.mark.parametrize("step", ["launch", "fetch"])
async def test_launched_batch_that_runs_out_of_memory_is_halved(
    callers: Callers, evictions: list[str], step: str
) -> None:
    def error_of(items: Sequence[Any]) -> BaseException | None:
        return MemoryError() if len(items) > 2 else None

    model = AsynchronousModel(**{"error_of" if step == "launch" else "fetch_error_of": error_of})
    model.release_all()
    tasks = await callers.submit_together(LoadedModel(model), "a", "b", "c", "d")
    assert raws(await asyncio.gather(*tasks)) == ["A", "B", "C", "D"]
    launches = [items for name, items in model.steps if name == "launch"]
    assert launches == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"]]
    assert evictions == ["freed"]


async def test_launched_batch_is_cancelled_when_its_callers_have_left(callers: Callers) -> None:
    model = AsynchronousModel()
    loaded = LoadedModel(model)
    tasks = await callers.submit_together(loaded, "a")
    callers.calls["a"].end()
    tasks[0].cancel()
    assert model.calls[0].cancelled
    tasks += await callers.submit_together(loaded, "b")
    model.release_all()
    assert (await tasks[1]).raw == "B"


async def test_busy_since_is_the_start_of_the_batch_that_the_device_computes(callers: Callers) -> None:
    model = AsynchronousModel()
    loaded = LoadedModel(model)
    tasks = await callers.submit_together(loaded, "a")
    first = callers.batcher.busy_since
    tasks += await callers.submit_together(loaded, "b")
    assert first is not None
    assert callers.batcher.busy_since == first
    model.launched[0].released.set()
    await tasks[0]
    second = callers.batcher.busy_since
    assert second is not None
    assert second > first
    model.release_all()
    await asyncio.gather(*tasks)
    assert callers.batcher.busy_since is None


async def test_batches_on_a_device_together_use_no_more_than_elapsed(callers: Callers) -> None:
    clock, model = Clock(), AsynchronousModel()
    loaded = LoadedModel(model, Pool("gpu", Meter(clock)))
    tasks = await callers.submit_together(loaded, "a")
    clock.now = 2.0
    tasks += await callers.submit_together(loaded, "b")
    clock.now = 6.0
    model.launched[0].released.set()
    await tasks[0]
    clock.now = 7.0
    model.release_all()
    await tasks[1]
    assert callers.calls["a"].used["gpu"] == 4.0
    assert callers.calls["b"].used["gpu"] == 3.0


async def test_closed_batcher_delivers_what_is_launched(callers: Callers) -> None:
    model = AsynchronousModel()
    tasks = await callers.submit_together(LoadedModel(model), "a")
    tasks += await callers.submit_together(LoadedModel(model), "b")
    callers.batcher.close()
    model.release_all()
    assert raws(await asyncio.gather(*tasks)) == ["A", "B"]


async def test_asynchronous_model_without_launch_fails_its_calls(callers: Callers) -> None:
    model = Model()
    model.asynchronous = True
    with pytest.raises(NotImplementedError, match="Model is declared asynchronous"):
        await callers.submit(LoadedModel(model), "a")


async def test_model_is_unloaded_after_its_launched_batches(callers: Callers) -> None:
    model = AsynchronousModel()
    model.close = lambda: model.steps.append(("close", []))  # type: ignore[method-assign]
    slot = ModelSlot(Offer(TaskSpec(), ModelCard(), lambda model_id, device: model), callers.batcher, Manager())  # type: ignore[arg-type]
    loaded = LoadedModel(model)
    slot.set_loaded(loaded, 1, seconds=0.0)
    tasks = await callers.submit_together(loaded, "a")
    unloading = asyncio.create_task(slot.unload())
    for _ in range(3):  # until its job is queued
        await asyncio.sleep(0)
    model.release_all()
    await asyncio.gather(unloading, *tasks)
    assert model.steps == [("launch", ["a"]), ("fetch", ["a"]), ("close", [])]
