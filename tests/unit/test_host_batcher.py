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

from experts.host.active_calls import CallsUnderWay, CallUnderWay
from experts.host.batch_composer import Composer, Member
from experts.host.batcher import LONGEST_WAIT, SHORTEST_WAIT, Queue, Ran
from experts.host.handler import Batching, Call
from experts.host.loaded_model import Loaded
from experts.host.threads import Promise
from services.common.errors import DeadlineExceeded, InvalidRequest, ModelFailed, Overloaded

Raising = Callable[[Sequence[Any]], BaseException | None]


class Model:
    """Gives its items back in capitals; fails as told, and holds the batches it is told to until let through."""

    batching = Batching(items=8)

    def __init__(self, raising: Raising = lambda items: None) -> None:
        self.batches: list[list[Any]] = []
        self.held: dict[int, threading.Event] = {}
        self.entered = threading.Event()
        self.calls: list[Call] = []
        self._raising = raising

    def prepare(self, inputs: Any, parameters: Any) -> Any: ...

    def cost(self, item: Any) -> float:
        return 1

    def run(self, items: Sequence[Any], call: Call) -> Sequence[Any]:
        self.batches.append(list(items))
        self.calls.append(call)
        if gate := self.held.get(len(self.batches)):
            self.entered.set()
            assert gate.wait(5)
        if error := self._raising(items):
            raise error
        return [item.upper() for item in items]

    def finish(self, raw: Any) -> Any: ...

    def hold(self, *batches: int) -> None:
        """Holds batches, counted from 1."""
        self.held = {number: threading.Event() for number in batches}

    async def reached(self) -> None:
        """A batch that is held has begun."""
        assert await asyncio.to_thread(self.entered.wait, 5)
        self.entered.clear()


class Callers:
    """Calls of one model, by what they ask."""

    def __init__(self, queue: Queue, stack: ExitStack) -> None:
        self.queue = queue
        self.calls: dict[str, CallUnderWay] = {}
        self._stack, self._all = stack, CallsUnderWay()

    def ask(self, model: Loaded, item: str, *, deadline: float = inf) -> "asyncio.Task[Ran]":
        self.calls[item] = call = self._stack.enter_context(self._all.entered("default", "", deadline=deadline))
        self._stack.enter_context(self.queue.place())
        return asyncio.create_task(self._asked(model, item, call))

    async def _asked(self, model: Loaded, item: str, call: CallUnderWay) -> Ran:
        promise = Promise[Ran]()

        def settle(outcome: Any) -> None:
            (promise.fail if isinstance(outcome, Exception) else promise.keep)(outcome)

        self.queue.enter(Member(model, "kind", item, 1, call, copy_context(), settle))
        return await promise.future


@pytest.fixture
def made_room() -> list[str]:
    return []


@pytest.fixture
def queue(made_room: list[str]) -> Iterator[Queue]:
    def make_room() -> None:
        made_room.append("room")

    queue = Queue("m", limit=20, composer=Composer(items=32, background_seconds=0.05))
    queue.make_room = make_room
    yield queue
    queue.thread.close()


@pytest.fixture
async def callers(queue: Queue) -> AsyncIterator[Callers]:
    with ExitStack() as stack:
        yield Callers(queue, stack)


async def waiting_behind(
    callers: Callers, model: Model, loaded: Loaded, *items: str, hold: Sequence[int] = (1,)
) -> "list[asyncio.Task[Ran]]":
    """The calls, all waiting for one that is under way and held; the first task is that one's."""
    model.hold(*hold)
    first = callers.ask(loaded, "first")
    await model.reached()
    tasks = [callers.ask(loaded, item) for item in items]
    for _ in range(3):
        await asyncio.sleep(0)
    return [first, *tasks]


def raws(results: Sequence[Ran | BaseException]) -> list[Any]:
    return [result.raw if isinstance(result, Ran) else type(result) for result in results]


@pytest.mark.parametrize(("limit", "background", "taken"), [(2, False, 2), (20, True, 15), (1, True, 1)])
def test_a_full_queue_refuses_with_a_time_to_come_back(limit: int, background: bool, taken: int) -> None:
    queue = Queue("m", limit=limit, composer=Composer(items=32, background_seconds=0.05))
    with ExitStack() as stack:
        for _ in range(taken):
            stack.enter_context(queue.place(background=background))
        with pytest.raises(Overloaded) as caught, queue.place(background=background):
            pass
        assert caught.value.retry_after
        assert timedelta(seconds=SHORTEST_WAIT) <= caught.value.retry_after <= timedelta(seconds=LONGEST_WAIT)
        assert (queue.waiting, queue.quiet) == (taken, taken == 1)
    with queue.place():
        assert (queue.waiting, queue.quiet) == (1, True)
    queue.thread.close()


async def test_what_came_while_a_batch_ran_is_the_next(callers: Callers) -> None:
    model = Model()
    loaded = Loaded(model)
    tasks = await waiting_behind(callers, model, loaded, "a", "b", "c")
    assert (callers.queue.running, callers.queue.waiting, callers.queue.shared) == (1, 3, True)
    model.held[1].set()
    assert raws(await asyncio.gather(*tasks)) == ["FIRST", "A", "B", "C"]
    assert model.batches == [["first"], ["a", "b", "c"]]
    ran = await tasks[1]
    assert ran.share == pytest.approx(ran.seconds / 3)


async def test_members_that_were_cancelled_are_left_out_and_their_mates_run(callers: Callers) -> None:
    model = Model()
    loaded = Loaded(model)
    tasks = await waiting_behind(callers, model, loaded, "a", "b", "c")
    callers.calls["b"].end()
    tasks[2].cancel()
    model.held[1].set()
    assert raws(await asyncio.gather(*tasks, return_exceptions=True)) == ["FIRST", "A", asyncio.CancelledError, "C"]
    assert model.batches == [["first"], ["a", "c"]]


@pytest.mark.parametrize("leaving", [["a"], ["c"], ["a", "b"]])
async def test_members_cancelled_while_their_batch_runs_harm_no_mate(callers: Callers, leaving: list[str]) -> None:
    model = Model()
    loaded = Loaded(model)
    waiting = await waiting_behind(callers, model, loaded, "a", "b", "c", hold=(1, 2))
    tasks = dict(zip(("first", "a", "b", "c"), waiting, strict=True))
    model.held[1].set()
    await model.reached()
    for name in leaving:
        tasks[name].cancel()
        callers.calls[name].end()
    assert not model.calls[-1].cancelled
    model.held[2].set()
    stayed = [name for name in "abc" if name not in leaving]
    assert raws(await asyncio.gather(*(tasks[name] for name in stayed))) == [name.upper() for name in stayed]
    assert (await callers.ask(loaded, "next")).raw == "NEXT"


async def test_a_batch_whose_callers_have_all_gone_hears_of_it(callers: Callers) -> None:
    model = Model()
    tasks = await waiting_behind(callers, model, Loaded(model))
    assert not model.calls[0].cancelled
    callers.calls["first"].end()
    assert model.calls[0].cancelled
    model.held[1].set()
    await asyncio.gather(*tasks)


async def test_who_is_past_its_deadline_is_told_so_and_not_run(callers: Callers) -> None:
    model = Model()
    loaded = Loaded(model)
    tasks = await waiting_behind(callers, model, loaded, "a")
    late = callers.ask(loaded, "late", deadline=time.monotonic())
    await asyncio.sleep(0)
    model.held[1].set()
    assert raws(await asyncio.gather(*tasks, late, return_exceptions=True)) == ["FIRST", "A", DeadlineExceeded]
    assert model.batches == [["first"], ["a"]]


@pytest.mark.parametrize(
    "error", [ValueError("bad"), InvalidRequest("dark"), SystemExit(1), asyncio.CancelledError()], ids=repr
)
async def test_a_poisonous_member_fails_alone(callers: Callers, error: BaseException) -> None:
    model = Model(lambda items: error if "poison" in items else None)
    tasks = await waiting_behind(callers, model, Loaded(model), "a", "poison", "c")
    model.held[1].set()
    expected = type(error) if isinstance(error, Exception) else RuntimeError
    assert raws(await asyncio.gather(*tasks, return_exceptions=True)) == ["FIRST", "A", expected, "C"]
    assert model.batches == [["first"], ["a", "poison", "c"], ["a"], ["poison"], ["c"]]
    assert callers.queue.running == 0


async def test_a_model_that_gives_too_few_results_is_named(callers: Callers) -> None:
    model = Model()
    model.run = lambda items, call: []  # type: ignore[method-assign]
    with pytest.raises(ModelFailed, match="0 results for 1 inputs"):
        await callers.ask(Loaded(model), "a")


async def test_a_batch_too_large_for_memory_is_halved_once_room_was_made(
    callers: Callers, made_room: list[str]
) -> None:
    model = Model(lambda items: MemoryError() if len(items) > 2 else None)
    loaded = Loaded(model)
    tasks = await waiting_behind(callers, model, loaded, "a", "b", "c", "d")
    model.held[1].set()
    assert raws(await asyncio.gather(*tasks)) == ["FIRST", "A", "B", "C", "D"]
    assert model.batches[1:] == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"]]
    assert made_room == ["room"]


async def test_an_item_too_large_for_memory_is_tried_twice_and_harms_no_mate(
    callers: Callers, made_room: list[str]
) -> None:
    model = Model(lambda items: MemoryError() if "huge" in items else None)
    tasks = await waiting_behind(callers, model, Loaded(model), "a", "huge")
    model.held[1].set()
    assert raws(await asyncio.gather(*tasks, return_exceptions=True)) == ["FIRST", "A", MemoryError]
    assert model.batches[1:] == [["a", "huge"], ["a"], ["huge"]]
    assert made_room == ["room"]


async def test_memory_that_cannot_be_freed_ends_no_thread(callers: Callers) -> None:
    def stuck() -> None:
        raise TimeoutError

    model = Model(lambda items: MemoryError() if "huge" in items else None)
    callers.queue.make_room = stuck
    loaded = Loaded(model)
    with pytest.raises(MemoryError):
        await callers.ask(loaded, "huge")
    assert (await callers.ask(loaded, "a")).raw == "A"


async def test_a_handler_that_says_nonsense_of_its_batches_fails_its_calls_alone(callers: Callers) -> None:
    model, nonsense = Model(), Model()
    nonsense.batching = "many"  # type: ignore[assignment]
    loaded = Loaded(model)
    with pytest.raises(AttributeError):
        await callers.ask(Loaded(nonsense), "a")
    assert (await callers.ask(loaded, "a")).raw == "A"


async def test_at_once_means_alone_and_memory_is_made_for_it(callers: Callers, made_room: list[str]) -> None:
    model = Model(lambda items: MemoryError() if not made_room else None)
    with CallsUnderWay().entered("default", "") as call:
        assert callers.queue.run_alone(Loaded(model), "a", 1, call).raw == "A"
    with pytest.raises(asyncio.CancelledError):
        callers.queue.run_alone(Loaded(model), "b", 1, call)
    assert (model.batches, made_room) == ([["a"], ["a"]], ["room"])


async def test_the_device_says_since_when_it_is_busy(callers: Callers) -> None:
    model = Model()
    assert callers.queue.busy_since is None
    tasks = await waiting_behind(callers, model, Loaded(model))
    since = callers.queue.busy_since
    assert since is not None
    assert since <= time.monotonic()
    model.held[1].set()
    await asyncio.gather(*tasks)
    assert callers.queue.busy_since is None
