import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from experts.host.device_memory import DeviceMemory
from experts.host.devices import MAX_WAITING, Memory
from experts.host.expert import Offer
from experts.host.handler import UNBATCHED, Batching, Handler, Single
from experts.host.load_context import ComputeOptions
from experts.host.model_manager import Limits, ModelManager, ModelSlot, State
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition, OutOfMemory


@dataclass(eq=False)
class FakeResident:
    """A resident model that records what happens to it."""

    id: str
    loaded_bytes: int = 1
    shared_bytes: Mapping[str, int] = field(default_factory=dict)
    load_seconds: float = 0.0
    loaded_at: float = 0.0
    used_at: float = 0.0
    active_calls: int = 0
    unloaded: bool = False
    accepting: list[bool] = field(default_factory=list)
    accepting_changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_idle(self) -> bool:
        return not self.active_calls

    @property
    def is_unused(self) -> bool:
        return not self.active_calls

    def accept_calls(self, *, accepting: bool) -> None:
        self.accepting.append(accepting)
        self.accepting_changed.set()

    async def unload(self) -> None:
        assert not self.active_calls
        self.unloaded = True


class Releases:
    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


def device_memory(budget: int, *residents: FakeResident) -> DeviceMemory[FakeResident]:
    memory: DeviceMemory[FakeResident] = DeviceMemory("cpu", budget, Releases())
    for resident in residents:
        memory.add(resident)
    return memory


def unloaded(*residents: FakeResident) -> list[str]:
    return [resident.id for resident in residents if resident.unloaded]


async def test_evictions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []

    class Counter:
        def add(self, amount: int, labels: object) -> None:
            counted.append((amount, labels))

    monkeypatch.setattr("experts.host.telemetry.evictions", Counter())
    await device_memory(1, FakeResident("a")).evict_for(1)
    assert counted == [(1, {"gen_ai.request.model": "a", "device": "cpu"})]


async def test_least_recently_used_models_are_evicted_as_needed() -> None:
    residents = FakeResident("a", used_at=3), FakeResident("b", used_at=1), FakeResident("c", used_at=2)
    full = device_memory(3, *residents)
    await full.evict_for(0)
    assert unloaded(*residents) == []
    await full.evict_for(2)
    assert unloaded(*residents) == ["b", "c"]
    assert full.used_bytes == 1
    assert full.free_bytes == 2
    assert full.largest_bytes == 1


async def test_nothing_is_evicted_without_a_budget() -> None:
    resident = FakeResident("a", loaded_bytes=10**15)
    unlimited = device_memory(0, resident)
    await unlimited.evict_for(10**15)
    assert unloaded(resident) == []
    assert unlimited.free_bytes == 0


async def test_model_larger_than_the_budget_evicts_all_others() -> None:
    small, large = FakeResident("small"), FakeResident("large", loaded_bytes=10)
    full = device_memory(3, small, large)
    await full.evict_for(0, keep=large)
    assert unloaded(small, large) == ["small"]


async def test_model_in_use_accepts_no_calls_until_it_is_evicted() -> None:
    busy = FakeResident("busy", active_calls=1)
    full = device_memory(1, busy)
    eviction = asyncio.create_task(full.evict_for(1))
    await asyncio.sleep(0)
    assert busy.unloaded is False
    assert busy.accepting == [False]
    busy.active_calls = 0
    full.freed.set()
    await eviction
    assert busy.unloaded is True
    assert busy.accepting == [False, True]


async def test_first_unused_model_is_evicted_and_others_accept_calls_again() -> None:
    one, two = FakeResident("one", active_calls=1), FakeResident("two", active_calls=1)
    full = device_memory(2, one, two)
    eviction = asyncio.create_task(full.evict_for(1))
    await asyncio.sleep(0)
    two.active_calls = 0
    full.freed.set()
    await eviction
    assert unloaded(one, two) == ["two"]
    assert one.accepting == [False, True]


async def test_model_in_use_stays_at_least_as_long_as_its_load_took() -> None:
    new = FakeResident("new", active_calls=1, loaded_at=time.monotonic(), load_seconds=0.05)
    full = device_memory(1, new)
    eviction = asyncio.create_task(full.evict_for(1))
    await asyncio.sleep(0)
    assert new.accepting == []
    await new.accepting_changed.wait()
    assert time.monotonic() >= new.loaded_at + new.load_seconds
    new.active_calls = 0
    full.freed.set()
    await eviction


async def test_evict_idle_spares_used_and_excluded_models() -> None:
    idle, busy, spared = FakeResident("idle"), FakeResident("busy", active_calls=1), FakeResident("spared")
    full = device_memory(3, idle, busy, spared)
    assert await full.evict_idle(excluding=lambda resident: resident is spared)
    assert unloaded(idle, busy, spared) == ["idle"]
    assert not await full.evict_idle(excluding=lambda resident: resident is spared)


# ---------------------------------------------------------------- with models


@dataclass(frozen=True)
class Bytes:
    used: int
    free: int


class Gpu:
    """A GPU of eight bytes by default; a model takes as many as the number in its name."""

    def __init__(self, total: int = 8, batching: Batching = UNBATCHED) -> None:
        self.total, self.used, self.peak, self.released = total, 0, 0, 0
        self.batching = batching

    def devices(self) -> tuple[str, ...]:
        return ("cuda:0",)

    def memory(self, device: str) -> Memory:
        assert device == "cuda:0"
        return Bytes(self.used, self.total - self.used)

    def utilization(self, device: str) -> float | None:
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
        return Weights(self, size)


class Weights(Single):
    """A model that occupies memory of the GPU until it is closed."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        super().__init__(lambda inputs, parameters: inputs, gpu.batching)
        self._gpu, self._size = gpu, size

    def close(self) -> None:
        self._gpu.used -= self._size


@contextmanager
def loaded_models(gpu: Gpu, *ids: str, budget: int = 0, **limits: Any) -> Iterator[ModelManager]:
    offers = [Offer(TaskSpec(name="task"), ModelCard(id=name, task="task"), gpu.load) for name in ids]
    with closing(ModelManager(offers, Limits(memory_bytes=budget, **limits), devices=gpu)) as models:
        yield models


async def use(model: ModelSlot) -> None:
    async with model.use():
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("limits", "batch", "calls"),
    [
        ({}, 96, 192),
        ({"batch_scale": 10.0}, 320, 640),
        ({"batch_scale": 0.5}, 16, 64),
        ({"batch_items": 4}, 4, 64),
        ({"batch_items": 500}, 500, 1000),
        ({"max_waiting": 5}, 96, 5),
        ({"max_waiting": 5000}, 96, 5000),
    ],
)
async def test_limits_follow_the_device_unless_they_are_set(limits: dict[str, Any], batch: int, calls: int) -> None:
    gpu = Gpu(total=48 * 2**30, batching=Batching())
    with loaded_models(gpu, "a-2", **limits) as models:
        model = models.get("task", "a-2")
        async with model.use() as loaded:
            assert loaded.batching.items == batch
        assert model.batcher.limit == calls


async def test_model_without_batching_accepts_as_many_calls_on_any_device() -> None:
    with loaded_models(Gpu(total=48 * 2**30), "a-2") as models:
        model = models.get("task", "a-2")
        await use(model)
        assert model.batcher.limit == MAX_WAITING


async def test_models_share_a_budget_of_measured_bytes() -> None:
    gpu = Gpu()
    with loaded_models(gpu, "a-2", "b-2", "c-2", budget=4) as models:
        for name in ("a-2", "b-2", "a-2", "c-2"):
            await use(models.get("task", name))
        assert models.loaded == {"a-2", "c-2"}
        assert models.get("task", "b-2").state == State.LOADABLE
        assert models.free_bytes == 1
        assert [models.get("task", name).loaded_bytes for name in ("a-2", "b-2")] == [2, 2]
        assert gpu.used == 4
        assert gpu.released > 0
        assert models.utilization == {"cuda:0": 0.25}


def test_shared_model_is_counted_once() -> None:
    memory = device_memory(10, *(FakeResident(name, shared_bytes={"base": 4}) for name in "ab"))
    assert memory.used_bytes == 6
    assert memory.expected_bytes(1, {"base": 4, "other": 2}) == 3


async def test_models_with_a_shared_base_are_evicted_until_it_is_freed() -> None:
    memory = device_memory(10, *(FakeResident(name, shared_bytes={"base": 4}) for name in "ab"))
    await memory.evict_for(6)
    assert memory.used_bytes == 0


class SharingGpu(Gpu):
    """A GPU whose models share one base of 3 bytes."""

    bases = 0

    def load(self, model_id: str, device: str) -> Handler:
        self.used += 0 if self.bases else 3
        self.bases += 1
        weights = super().load(model_id, device)
        weights.shared_bytes = {"base": 3}
        return weights


async def test_shared_base_is_not_charged_to_the_model_that_loaded_it() -> None:
    with loaded_models(SharingGpu(), "a-2", "b-2", budget=10) as models:
        for name in ("a-2", "b-2"):
            await use(models.get("task", name))
        assert [models.get("task", name).loaded_bytes for name in ("a-2", "b-2")] == [2, 2]
        assert models.free_bytes == 3


async def test_memory_is_freed_before_the_reload_of_a_measured_model() -> None:
    gpu = Gpu()
    with loaded_models(gpu, "a-3", "b-3", budget=5) as models:
        for name in ("a-3", "b-3", "a-3", "b-3"):
            await use(models.get("task", name))
        assert gpu.used == 3


@pytest.mark.parametrize(
    ("stated", "limits", "peak"),
    [
        ({}, {}, 6),
        ({"float32": 6, "float16": 3}, {}, 3),
        ({"float32": 3, "float16": 1}, {}, 6),
        ({"float32": 3, "float16": 1}, {"compute": ComputeOptions(dtype="float32")}, 3),
    ],
    ids=["unknown", "too large", "16-bit fits", "32-bit does not fit"],
)
async def test_memory_is_freed_before_the_first_load_by_the_bytes_on_the_card(
    stated: Mapping[str, int], limits: Mapping[str, Any], peak: int
) -> None:
    gpu = Gpu()
    cards = [ModelCard(id=name, task="task") for name in ("a-3", "b-3")]
    offers = [Offer(TaskSpec(name="task"), card, gpu.load, weight_bytes=stated) for card in cards]
    with closing(ModelManager(offers, Limits(memory_bytes=5, **limits), devices=gpu)) as models:
        for card in cards:
            await use(models.get("task", card.id))
    assert gpu.peak == peak


async def test_load_is_retried_after_idle_models_are_evicted() -> None:
    gpu = Gpu(total=4)
    with loaded_models(gpu, "a-3", "b-3", "c-9", budget=100) as models:
        await use(models.get("task", "a-3"))
        await use(models.get("task", "b-3"))
        assert models.loaded == {"b-3"}
        with pytest.raises(FailedPrecondition, match="does not fit"):
            await use(models.get("task", "c-9"))


async def test_eight_models_in_memory_for_three_answer_every_call() -> None:
    gpu = Gpu(total=4)
    names = [f"{letter}-1" for letter in "abcdefgh"]
    with loaded_models(gpu, *names, budget=3) as models:

        async def caller(number: int) -> None:
            for turn in range(10):
                await use(models.get("task", names[(number * 3 + turn * 5) % len(names)]))

        async with asyncio.timeout(20):
            await asyncio.gather(*(caller(number) for number in range(16)))
        assert gpu.peak <= 4
        assert gpu.used == 3


async def test_preload_stops_at_the_budget() -> None:
    gpu = Gpu()
    with loaded_models(gpu, "a-1", "b-1", "c-1", budget=2) as models:
        assert await models.preload(["a-1", "b-1", "c-1"])
        assert models.loaded == {"a-1", "b-1"}


async def test_idle_model_is_evicted_when_a_call_runs_out_of_memory() -> None:
    gpu = Gpu()
    with loaded_models(gpu, "a-1", "b-1", "c-1", budget=8) as models:
        await use(models.get("task", "b-1"))
        a, c = models.get("task", "a-1"), models.get("task", "c-1")
        async with a.use(), c.use():
            await a.batcher.thread.run(a.batcher.free_memory)
            assert models.loaded == {"a-1", "c-1"}
