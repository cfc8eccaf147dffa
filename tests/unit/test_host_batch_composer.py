import time
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from experts.host.active_calls import CallsUnderWay
from experts.host.batch_composer import PATIENCE_SECONDS, QUIET_SECONDS, Composer, Member
from experts.host.handler import Batching, single
from experts.host.loaded_model import Loaded
from tests.support.clock import Clock


def model(batching: Batching) -> Loaded:
    return Loaded(replace(single(lambda inputs, parameters: inputs), batching=batching))  # type: ignore[type-var]  # it is a dataclass


def measured(loaded: Loaded, start: float, each: float) -> Loaded:
    """A model whose batches are known to take so long."""
    for cost in (1, 1, 10, 100, 500):
        loaded.ran(cost, start + each * cost)
    return loaded


@pytest.fixture
async def composer() -> Composer:
    return Composer(items=8, background_seconds=0.05)


def member(loaded: Loaded, item: Any, *, cost: float = 1, background: bool = False, kind: str = "k") -> Member:
    with CallsUnderWay().entered("default", "", background=background) as call:
        return Member(loaded, kind, item, cost, call, copy_context(), lambda outcome: None)


def items(batch: Sequence[Member]) -> list[Any]:
    return [each.item for each in batch]


async def test_all_that_wait_run_together_up_to_the_limits(composer: Composer) -> None:
    loaded = model(Batching(items=4))
    assert items(composer.compose([member(loaded, n) for n in range(6)])) == [0, 1, 2, 3]
    loaded = model(Batching())
    assert len(composer.compose([member(loaded, n) for n in range(20)])) == 8


async def test_only_calls_of_one_model_and_kind_run_together(composer: Composer) -> None:
    one, two = model(Batching()), model(Batching())
    waiting = [member(one, 1), member(one, 2, kind="other"), member(two, 3), member(one, 4)]
    assert items(composer.compose(waiting)) == [1, 4]


async def test_a_batch_stays_within_its_budget(composer: Composer) -> None:
    loaded = model(Batching(budget=10))
    assert items(composer.compose([member(loaded, n, cost=n) for n in (6, 5, 3, 1)])) == [6, 3, 1]
    assert items(composer.compose([member(loaded, n, cost=n) for n in (60, 5)])) == [60]


async def test_a_padded_batch_costs_its_longest_times_their_number(composer: Composer) -> None:
    loaded = model(Batching(budget=40, padded=True))
    assert items(composer.compose([member(loaded, n, cost=n) for n in (10, 30, 9, 11, 2)])) == [10, 9, 11]


async def test_padding_is_put_up_with_only_where_it_costs_less_than_another_batch(composer: Composer) -> None:
    dear = measured(model(Batching(padded=True)), start=0.005, each=0.001)
    assert items(composer.compose([member(dear, n, cost=n) for n in (10, 100, 10, 11)])) == [10, 10, 11]
    cheap = measured(model(Batching(padded=True)), start=0.5, each=0.001)
    assert items(composer.compose([member(cheap, n, cost=n) for n in (10, 100, 10, 11)])) == [10, 10, 11, 100]


async def test_interactive_calls_go_before_background_ones_and_never_with_them(composer: Composer) -> None:
    loaded = measured(model(Batching()), start=0.0, each=0.001)
    waiting = [member(loaded, "b1", background=True), member(loaded, "i1"), member(loaded, "b2", background=True)]
    first = composer.compose(waiting)
    assert items(first) == ["i1"]
    assert items(composer.compose([each for each in waiting if each not in first])) == ["b1", "b2"]


async def test_a_background_batch_is_capped_by_the_time_it_takes_while_people_ask() -> None:
    clock = Clock()
    composer = Composer(items=8, background_seconds=0.05, clock=clock)
    loaded = measured(model(Batching()), start=0.02, each=0.01)
    background = [member(loaded, n, background=True) for n in range(8)]
    assert len(composer.compose([member(loaded, n) for n in range(8)])) == 8
    clock.now = QUIET_SECONDS
    assert items(composer.compose(background)) == [0, 1, 2]
    clock.now += 1
    assert len(composer.compose(background)) == 8


async def test_a_background_batch_is_capped_where_it_is_alone_too(composer: Composer) -> None:
    loaded = measured(model(Batching()), start=0.02, each=0.1)
    assert items(composer.compose([member(loaded, n, background=True) for n in range(8)])) == [0, 1, 2, 3]


async def test_a_model_not_yet_measured_gets_background_calls_one_by_one(composer: Composer) -> None:
    loaded = model(Batching())
    assert items(composer.compose([member(loaded, n, background=True) for n in range(8)])) == [0]


async def test_background_calls_that_have_waited_long_get_every_other_batch(composer: Composer) -> None:
    loaded = measured(model(Batching(items=1)), start=0.0, each=0.001)
    old = member(loaded, "old", background=True)
    old.arrived = time.monotonic() - 2 * PATIENCE_SECONDS
    assert items(composer.compose([old, member(loaded, "i1")])) == ["i1"]
    assert items(composer.compose([old, member(loaded, "i2")])) == ["old"]
    assert items(composer.compose([old, member(loaded, "i2")])) == ["i2"]


async def test_who_failed_with_others_runs_alone(composer: Composer) -> None:
    loaded = model(Batching())
    waiting = [member(loaded, n) for n in range(3)]
    waiting[0].alone = True
    assert items(composer.compose(waiting)) == [0]
    assert items(composer.compose(waiting[1:])) == [1, 2]


async def test_after_too_little_memory_batches_are_half_as_large_and_grow_again(composer: Composer) -> None:
    loaded = model(Batching())
    loaded.did_not_fit(8)
    waiting = [member(loaded, n) for n in range(8)]
    assert len(composer.compose(waiting)) == 4
    for _ in range(10):
        loaded.ran(4, 0.01)
    assert len(composer.compose(waiting)) == 8
    assert loaded.ceiling < inf
