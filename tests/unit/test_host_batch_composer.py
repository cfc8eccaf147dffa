import time
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from experts.host.active_calls import ActiveCalls
from experts.host.batch_composer import INTERACTIVE_IDLE_SECONDS, MAX_OVERTAKEN_SECONDS, BatchComposer, QueuedCall
from experts.host.handler import Batching, single
from experts.host.loaded_model import LoadedModel
from tests.support.clock import Clock


def model(batching: Batching) -> LoadedModel:
    handler = replace(single(lambda inputs, parameters: inputs), batching=batching)  # type: ignore[type-var]  # it is a dataclass
    return LoadedModel(handler, batch_items=8)


def measured(loaded: LoadedModel, start: float, each: float) -> LoadedModel:
    """Records batches that take `start` seconds plus `each` seconds per unit of cost."""
    for cost in (1, 1, 10, 100, 500):
        loaded.record_batch(cost, start + each * cost)
    return loaded


@pytest.fixture
async def composer() -> BatchComposer:
    return BatchComposer(background_seconds=0.05)


def queued(
    loaded: LoadedModel, item: Any, *, cost: float = 1, background: bool = False, batch_key: str = "k"
) -> QueuedCall:
    with ActiveCalls().track("default", "", background=background) as call:
        return QueuedCall(loaded, batch_key, item, cost, call, copy_context(), lambda outcome: None)


def items(batch: Sequence[QueuedCall]) -> list[Any]:
    return [each.item for each in batch]


async def test_waiting_calls_run_together_up_to_the_limits(composer: BatchComposer) -> None:
    loaded = model(Batching(items=4))
    assert items(composer.compose([queued(loaded, n) for n in range(6)])) == [0, 1, 2, 3]
    loaded = model(Batching())
    assert len(composer.compose([queued(loaded, n) for n in range(20)])) == 8


@pytest.mark.parametrize(("batch_items", "calls"), [(2, 2), (100, 4)])
async def test_no_setting_raises_the_limit_of_the_handler(
    composer: BatchComposer, batch_items: int, calls: int
) -> None:
    loaded = replace(model(Batching(items=4)), batch_items=batch_items)
    assert len(composer.compose([queued(loaded, n) for n in range(20)])) == calls


async def test_budget_grows_with_the_batch_scale_until_memory_runs_out(composer: BatchComposer) -> None:
    loaded = replace(model(Batching(budget=3)), batch_scale=2.0)
    assert len(composer.compose([queued(loaded, n) for n in range(8)])) == 6
    loaded.record_out_of_memory(4)
    assert len(composer.compose([queued(loaded, n) for n in range(8)])) == 2


async def test_only_calls_of_one_model_and_batch_key_run_together(composer: BatchComposer) -> None:
    one, two = model(Batching()), model(Batching())
    waiting = [queued(one, 1), queued(one, 2, batch_key="other"), queued(two, 3), queued(one, 4)]
    assert items(composer.compose(waiting)) == [1, 4]


async def test_batch_stays_within_its_budget(composer: BatchComposer) -> None:
    loaded = model(Batching(budget=10))
    assert items(composer.compose([queued(loaded, n, cost=n) for n in (6, 5, 3, 1)])) == [6, 3, 1]
    assert items(composer.compose([queued(loaded, n, cost=n) for n in (60, 5)])) == [60]


async def test_cost_of_padded_batch_is_longest_item_times_count(composer: BatchComposer) -> None:
    loaded = model(Batching(budget=40, padded=True))
    assert items(composer.compose([queued(loaded, n, cost=n) for n in (10, 30, 9, 11, 2)])) == [10, 9, 11]


async def test_long_item_is_padded_only_if_faster_than_another_batch(composer: BatchComposer) -> None:
    slow = measured(model(Batching(padded=True)), start=0.005, each=0.001)
    assert items(composer.compose([queued(slow, n, cost=n) for n in (10, 100, 10, 11)])) == [10, 10, 11]
    fast = measured(model(Batching(padded=True)), start=0.5, each=0.001)
    assert items(composer.compose([queued(fast, n, cost=n) for n in (10, 100, 10, 11)])) == [10, 10, 11, 100]


async def test_padded_batch_ends_where_padding_costs_more_than_a_batch_saves(composer: BatchComposer) -> None:
    lengths = [20, *range(13, 20), *range(21, 31)]
    loaded = replace(measured(model(Batching(padded=True)), start=0.01, each=0.001), batch_items=32)
    assert items(composer.compose([queued(loaded, n, cost=n) for n in lengths])) == [20, 19, 21, 18, 22]


async def test_padded_batch_of_unmeasured_model_takes_all_lengths(composer: BatchComposer) -> None:
    loaded = model(Batching(padded=True))
    assert items(composer.compose([queued(loaded, n, cost=n) for n in (10, 100)])) == [10, 100]


async def test_equally_large_batches_are_followed_by_one_with_less_padding(composer: BatchComposer) -> None:
    loaded, lengths = replace(model(Batching(padded=True)), batch_items=32), range(41, 9, -1)
    for _ in range(3):
        loaded.record_batch(len(lengths) * max(lengths), 1.0)
    batch = items(composer.compose([queued(loaded, n, cost=n) for n in lengths]))
    assert max(batch) * len(batch) < 1.3 * sum(batch)


async def test_small_equal_batches_are_followed_by_a_larger_one(composer: BatchComposer) -> None:
    loaded = replace(model(Batching(padded=True)), batch_items=32)
    for _ in range(3):
        loaded.record_batch(30, 0.1)
    assert len(composer.compose([queued(loaded, n, cost=30 + n % 3) for n in range(32)])) > 1


async def test_interactive_calls_precede_background_calls_in_separate_batches(composer: BatchComposer) -> None:
    loaded = measured(model(Batching()), start=0.0, each=0.001)
    waiting = [queued(loaded, "b1", background=True), queued(loaded, "i1"), queued(loaded, "b2", background=True)]
    first = composer.compose(waiting)
    assert items(first) == ["i1"]
    assert items(composer.compose([each for each in waiting if each not in first])) == ["b1", "b2"]


async def test_background_batch_is_limited_by_duration_while_interactive_calls_arrive() -> None:
    clock = Clock()
    composer = BatchComposer(background_seconds=0.05, clock=clock)
    loaded = measured(model(Batching()), start=0.02, each=0.01)
    background = [queued(loaded, n, background=True) for n in range(8)]
    assert len(composer.compose([queued(loaded, n) for n in range(8)])) == 8
    clock.now = INTERACTIVE_IDLE_SECONDS
    assert items(composer.compose(background)) == [0, 1, 2]
    clock.now += 1
    assert len(composer.compose(background)) == 8


async def test_background_batch_is_limited_without_interactive_calls(composer: BatchComposer) -> None:
    loaded = measured(model(Batching()), start=0.02, each=0.1)
    assert items(composer.compose([queued(loaded, n, background=True) for n in range(8)])) == [0, 1, 2, 3]


async def test_unmeasured_model_gets_single_background_calls(composer: BatchComposer) -> None:
    loaded = model(Batching())
    assert items(composer.compose([queued(loaded, n, background=True) for n in range(8)])) == [0]


async def test_long_waiting_background_call_gets_every_other_batch(composer: BatchComposer) -> None:
    loaded = measured(model(Batching(items=1)), start=0.0, each=0.001)
    old = queued(loaded, "old", background=True)
    old.arrived_at = time.monotonic() - 2 * MAX_OVERTAKEN_SECONDS
    assert items(composer.compose([old, queued(loaded, "i1")])) == ["i1"]
    assert items(composer.compose([old, queued(loaded, "i2")])) == ["old"]
    assert items(composer.compose([old, queued(loaded, "i2")])) == ["i2"]


async def test_call_of_a_failed_batch_runs_alone(composer: BatchComposer) -> None:
    loaded = model(Batching())
    waiting = [queued(loaded, n) for n in range(3)]
    waiting[0].runs_alone = True
    assert items(composer.compose(waiting)) == [0]
    assert items(composer.compose(waiting[1:])) == [1, 2]


async def test_batches_are_halved_after_out_of_memory_and_grow_again(composer: BatchComposer) -> None:
    loaded = model(Batching())
    loaded.record_out_of_memory(8)
    waiting = [queued(loaded, n) for n in range(8)]
    assert len(composer.compose(waiting)) == 4
    for _ in range(10):
        loaded.record_batch(4, 0.01)
    assert len(composer.compose(waiting)) == 8
    assert loaded.max_batch_cost < inf
