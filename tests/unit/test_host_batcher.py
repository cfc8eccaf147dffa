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
from experts.host.handler import Batching, Call, Handler
from experts.host.loaded_model import LoadedModel
from experts.host.threads import ThreadSafeFuture
from services.common.errors import DeadlineExceeded, InvalidRequest, ModelFailed, Overloaded

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


class Callers:
    """Calls of one model, by their items."""

    def __init__(self, batcher: Batcher, stack: ExitStack) -> None:
        self.batcher = batcher
        self.calls: dict[str, ActiveCall] = {}
        self._stack, self._all = stack, ActiveCalls()

    def submit(self, model: LoadedModel, item: str, *, deadline: float = inf) -> "asyncio.Task[BatchedResult]":
        self.calls[item] = call = self._stack.enter_context(self._all.track("default", "", deadline=deadline))
        self._stack.enter_context(self.batcher.admit())
        return asyncio.create_task(self._result(model, item, call))

    async def _result(self, model: LoadedModel, item: str, call: ActiveCall) -> BatchedResult:
        future = ThreadSafeFuture[BatchedResult]()

        def deliver(outcome: Any) -> None:
            (future.set_exception if isinstance(outcome, Exception) else future.set_result)(outcome)

        self.batcher.submit(QueuedCall(model, "key", item, 1, call, copy_context(), deliver))
        return await future.future


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
    batcher.thread.close()


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
