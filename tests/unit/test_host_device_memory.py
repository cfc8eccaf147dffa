import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pytest

from experts.host.device_memory import Room
from experts.host.devices import Memory
from experts.host.expert import Offer
from experts.host.handler import Handler
from experts.host.model_slot import Model, State
from experts.host.models import Limits, Models
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition, OutOfMemory


@dataclass(eq=False)
class Lodger:
    """A model as its room sees it."""

    id: str
    loaded_bytes: int = 1
    load_seconds: float = 0.0
    loaded_at: float = 0.0
    used_at: float = 0.0
    inside: int = 0
    gone: bool = False
    admitting: list[bool] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def idle(self) -> bool:
        return not self.inside

    @property
    def vacant(self) -> bool:
        return not self.inside

    def admit(self, *, admitting: bool) -> None:
        self.admitting.append(admitting)
        self.told.set()

    async def unload(self) -> None:
        assert not self.inside
        self.gone = True


class Releases:
    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


def room(budget: int, *lodgers: Lodger) -> Room[Lodger]:
    made: Room[Lodger] = Room("cpu", budget, Releases())
    for lodger in lodgers:
        made.enter(lodger)
    return made


def gone(*lodgers: Lodger) -> list[str]:
    return [lodger.id for lodger in lodgers if lodger.gone]


async def test_who_leaves_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []

    class Counter:
        def add(self, amount: int, labels: object) -> None:
            counted.append((amount, labels))

    monkeypatch.setattr("experts.host.telemetry.evictions", Counter())
    await room(1, Lodger("a")).make(1)
    assert counted == [(1, {"gen_ai.request.model": "a", "device": "cpu"})]


async def test_who_was_not_used_for_longest_leaves_and_no_more_than_needed() -> None:
    lodgers = Lodger("a", used_at=3), Lodger("b", used_at=1), Lodger("c", used_at=2)
    full = room(3, *lodgers)
    await full.make(0)
    assert gone(*lodgers) == []
    await full.make(2)
    assert gone(*lodgers) == ["b", "c"]
    assert (full.used, full.free, full.largest) == (1, 2, 1)


async def test_without_a_budget_nobody_leaves() -> None:
    lodger = Lodger("a", loaded_bytes=10**15)
    unlimited = room(0, lodger)
    await unlimited.make(10**15)
    assert (gone(lodger), unlimited.free) == ([], 0)


async def test_what_is_larger_than_the_room_comes_in_alone() -> None:
    small, large = Lodger("small"), Lodger("large", loaded_bytes=10)
    full = room(3, small, large)
    await full.make(0, keep=large)
    assert gone(small, large) == ["small"]


async def test_a_model_in_use_is_waited_for_and_lets_nobody_in_meanwhile() -> None:
    busy = Lodger("busy", inside=1)
    full = room(1, busy)
    making = asyncio.create_task(full.make(1))
    await asyncio.sleep(0)
    assert (busy.gone, busy.admitting) == (False, [False])
    busy.inside = 0
    full.freed.set()
    await making
    assert (busy.gone, busy.admitting) == (True, [False, True])


async def test_the_first_that_is_free_leaves_and_the_others_go_on() -> None:
    one, two = Lodger("one", inside=1), Lodger("two", inside=1)
    full = room(2, one, two)
    making = asyncio.create_task(full.make(1))
    await asyncio.sleep(0)
    two.inside = 0
    full.freed.set()
    await making
    assert gone(one, two) == ["two"]
    assert one.admitting == [False, True]


async def test_a_model_in_use_stays_at_least_as_long_as_it_took_to_load() -> None:
    new = Lodger("new", inside=1, loaded_at=time.monotonic(), load_seconds=0.05)
    full = room(1, new)
    making = asyncio.create_task(full.make(1))
    await asyncio.sleep(0)
    assert new.admitting == []
    await new.told.wait()
    assert time.monotonic() >= new.loaded_at + new.load_seconds
    new.inside = 0
    full.freed.set()
    await making


async def test_clearing_has_only_those_leave_that_nobody_uses() -> None:
    idle, busy, spared = Lodger("idle"), Lodger("busy", inside=1), Lodger("spared")
    full = room(3, idle, busy, spared)
    assert await full.clear(spare=lambda lodger: lodger is spared)
    assert gone(idle, busy, spared) == ["idle"]
    assert not await full.clear(spare=lambda lodger: lodger is spared)


# ---------------------------------------------------------------- with models


@dataclass(frozen=True)
class Bytes:
    used: int
    free: int


class Gpu:
    """A device of eight bytes; what is loaded there takes one each, or as many as its name says."""

    def __init__(self, total: int = 8) -> None:
        self.total, self.used, self.peak, self.released = total, 0, 0, 0

    def devices(self) -> tuple[str, ...]:
        return ("cuda:0",)

    def memory(self, device: str) -> Memory:
        assert device == "cuda:0"
        return Bytes(self.used, self.total - self.used)

    def use(self, device: str) -> float | None:
        return 0.25 if device == "cuda:0" else None

    def product(self, device: str) -> str:
        return f"Tiny {device}"

    def release(self) -> None:
        self.released += 1

    def load(self, model_id: str, device: str) -> Handler:
        size = int(model_id.rpartition("-")[2])
        if self.used + size > self.total:
            raise OutOfMemory(f"{model_id} does not fit")
        self.used += size
        self.peak = max(self.peak, self.used)
        return Weights(self, size)  # type: ignore[return-value]  # nobody runs it


class Weights:
    def __init__(self, gpu: Gpu, size: int) -> None:
        self._gpu, self._size = gpu, size

    def close(self) -> None:
        self._gpu.used -= self._size


@contextmanager
def housed(gpu: Gpu, *ids: str, budget: int = 0) -> Iterator[Models]:
    offers = [Offer(TaskSpec(name="task"), ModelCard(id=name, task="task"), gpu.load) for name in ids]
    with closing(Models(offers, Limits(memory_bytes=budget), devices=gpu)) as models:
        yield models


async def used(model: Model) -> None:
    async with model.used():
        await asyncio.sleep(0)


async def test_models_share_a_budget_of_measured_bytes() -> None:
    gpu = Gpu()
    with housed(gpu, "a-2", "b-2", "c-2", budget=4) as models:
        for name in ("a-2", "b-2", "a-2", "c-2"):
            await used(models.get("task", name))
        assert models.loaded == {"a-2", "c-2"}
        assert (models.get("task", "b-2").state, models.free_bytes) == (State.LOADABLE, 1)
        assert [models.get("task", name).loaded_bytes for name in ("a-2", "b-2")] == [2, 2]
        assert (gpu.used, gpu.released > 0) == (4, True)
        assert models.use == {"cuda:0": 0.25}


async def test_what_is_known_to_be_large_finds_its_room_made_before_it_comes() -> None:
    gpu = Gpu()
    with housed(gpu, "a-3", "b-3", budget=5) as models:
        for name in ("a-3", "b-3", "a-3", "b-3"):
            await used(models.get("task", name))
        assert gpu.used == 3


async def test_a_load_that_finds_no_memory_is_tried_again_once_the_idle_have_left() -> None:
    gpu = Gpu(total=4)
    with housed(gpu, "a-3", "b-3", "c-9", budget=100) as models:
        await used(models.get("task", "a-3"))
        await used(models.get("task", "b-3"))
        assert models.loaded == {"b-3"}
        with pytest.raises(FailedPrecondition, match="does not fit"):
            await used(models.get("task", "c-9"))


async def test_eight_models_in_the_room_of_three_answer_every_call() -> None:
    gpu = Gpu(total=4)
    names = [f"{letter}-1" for letter in "abcdefgh"]
    with housed(gpu, *names, budget=3) as models:

        async def caller(number: int) -> None:
            for turn in range(10):
                await used(models.get("task", names[(number * 3 + turn * 5) % len(names)]))

        async with asyncio.timeout(20):
            await asyncio.gather(*(caller(number) for number in range(16)))
        assert gpu.peak <= 4
        assert gpu.used == 3


async def test_preloading_ends_where_the_room_does() -> None:
    gpu = Gpu()
    with housed(gpu, "a-1", "b-1", "c-1", budget=2) as models:
        assert await models.load(["a-1", "b-1", "c-1"])
        assert models.loaded == {"a-1", "b-1"}


async def test_an_idle_model_leaves_when_another_runs_out_of_memory_in_a_call() -> None:
    gpu = Gpu()
    with housed(gpu, "a-1", "b-1", "c-1", budget=8) as models:
        await used(models.get("task", "b-1"))
        a, c = models.get("task", "a-1"), models.get("task", "c-1")
        async with a.used(), c.used():
            await a.queue.thread.run(a.queue.make_room)
            assert models.loaded == {"a-1", "c-1"}
