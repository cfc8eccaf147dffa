"""Which of an expert's addresses runs a model."""

import heapq
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

import pytest

from protos.hugginggpt.internal.v1.selector_pb2 import Endpoint
from services.orchestrator.experts.load_balancer import (
    FORGET_SECONDS,
    FRESH_SECONDS,
    LONG_QUEUE,
    UNUSED_SECONDS,
    LoadBalancer,
)
from tests.support.clock import Clock

A, B, C = "a:1", "b:1", "c:1"


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def replicas(clock: Clock) -> LoadBalancer:
    return LoadBalancer(clock)


def places(*given: tuple[str, bool, int, int]) -> list[Endpoint]:
    return [Endpoint(address=a, loaded=loaded, queue=queue, free_bytes=free) for a, loaded, queue, free in given]


def said(queue: int = 0, *loaded: str, free: int = 0) -> list[tuple[str, str | bytes]]:
    return [("expert-queue", str(queue)), ("expert-loaded", ",".join(loaded)), ("expert-free-bytes", str(free))]


def test_the_least_busy_that_has_the_model_runs_it(replicas: LoadBalancer) -> None:
    assert replicas.choose("m", places((A, False, 0, 99), (B, True, 3, 0), (C, True, 2, 0))) == C


def test_a_cold_model_goes_where_most_room_is(replicas: LoadBalancer) -> None:
    assert replicas.choose("m", places((A, False, 0, 5), (B, False, 3, 9), (C, False, 0, 0))) == B


def test_of_equal_places_every_orchestrator_takes_the_same_and_not_the_same_for_all(clock: Clock) -> None:
    cold = places((A, False, 0, 0), (B, False, 0, 0), (C, False, 0, 0))
    chosen = {model: LoadBalancer(clock).choose(model, cold) for model in map(str, range(30))}
    again = {model: LoadBalancer(clock).choose(model, cold[::-1]) for model in chosen}
    assert again == chosen
    assert set(chosen.values()) == {A, B, C}


def test_a_burst_for_a_cold_model_loads_it_once(replicas: LoadBalancer) -> None:
    cold = places((A, False, 0, 9), (B, False, 0, 9))
    first = replicas.choose("m", cold)
    for _ in range(50):
        replicas.call_started(first, "m")
        assert replicas.choose("m", cold) == first


def test_a_burst_of_cold_models_is_spread_over_the_replicas(replicas: LoadBalancer) -> None:
    cold, counted = places((A, False, 0, 9), (B, False, 0, 9), (C, False, 0, 9)), []
    for model in map(str, range(9)):
        counted.append(replicas.choose(model, cold))
        replicas.call_started(counted[-1], model)
    assert sorted(counted) == [A, A, A, B, B, B, C, C, C]


def test_what_is_being_loaded_takes_room_as_its_size_was_learnt(replicas: LoadBalancer) -> None:
    one, two = places((A, False, 0, 10), (B, False, 0, 9))
    replicas.choose("m", [one, two])
    replicas.call_started(A, "m")
    replicas.call_ended(A, "m", said(0, "m", free=6))
    assert replicas.choose("n", [one, two]) == B
    replicas.call_started(B, "n")
    assert replicas.choose("o", [one, two]) == A


def test_a_hot_model_is_spread_when_its_queue_is_long_and_another_has_room(replicas: LoadBalancer) -> None:
    known = places((A, True, 0, 0), (B, False, 0, 9))
    for _ in range(LONG_QUEUE):
        assert replicas.choose("m", known) == A
        replicas.call_started(A, "m")
    assert replicas.choose("m", known) == B


def test_a_hot_model_stays_where_it_is_while_the_others_are_as_busy(replicas: LoadBalancer) -> None:
    known = places((A, True, 3 * LONG_QUEUE, 0), (B, False, LONG_QUEUE, 9))
    assert replicas.choose("m", known) == A


def test_a_hot_model_throws_out_none_in_use_but_one_that_has_gone_unused(replicas: LoadBalancer, clock: Clock) -> None:
    hot, cold = places((A, True, 2 * LONG_QUEUE, 0), (B, False, 0, 5))
    replicas.choose("m", [hot, cold])
    replicas.call_started(B, "other")
    replicas.call_ended(B, "other", said(0, "other", free=5))
    replicas.call_started(B, "other")
    replicas.call_ended(B, "other", said(0, "other"))
    clock.now += FRESH_SECONDS / 2
    assert replicas.choose("m", [hot, cold]) == A
    clock.now += UNUSED_SECONDS
    assert replicas.choose("m", [hot, cold]) == B


def test_what_an_address_says_itself_counts_more_than_a_selection_until_it_is_old(
    replicas: LoadBalancer, clock: Clock
) -> None:
    stale = places((A, False, 50, 0), (B, True, 40, 0))
    assert replicas.choose("m", stale) == B
    replicas.call_started(A, "m")
    replicas.call_ended(A, "m", said(1, "m"))
    assert replicas.choose("m", stale) == A
    clock.now += FRESH_SECONDS
    assert replicas.choose("m", stale) == B


def test_a_model_that_was_thrown_out_is_cold_again(replicas: LoadBalancer) -> None:
    known = places((A, True, 0, 0), (B, False, 0, 1))
    replicas.call_started(A, "m")
    replicas.call_ended(A, "m", said(0, "other"))
    assert replicas.choose("m", known) == B


def test_an_address_that_takes_no_calls_is_passed_over_for_as_long(replicas: LoadBalancer, clock: Clock) -> None:
    known = places((A, True, 0, 0), (B, False, 0, 0))
    replicas.choose("m", known)
    replicas.refused(A, 3.0)
    assert replicas.choose("m", known) == B
    assert replicas.choose("m", known[:1]) == A
    clock.now += 3.0
    assert replicas.choose("m", known) == A


def test_an_address_that_nobody_mentions_is_forgotten_once_its_calls_have_ended(
    replicas: LoadBalancer, clock: Clock
) -> None:
    replicas.choose("m", places((A, True, 0, 0), (B, False, 0, 0)))
    replicas.call_started(B, "m")
    clock.now += FORGET_SECONDS + 1
    replicas.forget()
    assert replicas.addresses == {B}
    replicas.call_ended(B, "m")
    replicas.forget()
    assert not replicas.addresses


@pytest.mark.parametrize("trailer", [[], said(), [("expert-loaded", b"\xff"), ("expert-queue", "many")]])
def test_a_trailer_that_says_nothing_sensible_harms_nobody(
    replicas: LoadBalancer, trailer: list[tuple[str, str | bytes]]
) -> None:
    replicas.call_started(A, "m")
    replicas.call_ended(A, "m", trailer)
    assert replicas.choose("m", places((A, True, 0, 0))) == A


# ---------------------------------------------------------------- three replicas, room for three of eight models each

MODELS = tuple(f"model-{number}" for number in range(8))
ROOM = 3
SERVE_SECONDS, LOAD_SECONDS = 0.001, 0.2
REQUESTS = 10_000


class Shelf:
    """A replica that puts away the model unused for longest; it does one call after the other.

    Args:
        address: where it is.
        tells: it says how much room it has.
    """

    def __init__(self, address: str, *, tells: bool) -> None:
        self.address = address
        self.models: OrderedDict[str, None] = OrderedDict()
        self.queue: deque[str] = deque()
        self.loads = 0
        self._tells = tells

    def serve(self, model: str) -> float:
        """Seconds until the call is done."""
        seconds = SERVE_SECONDS
        if model not in self.models:
            self.loads += 1
            seconds += LOAD_SECONDS
            if len(self.models) == ROOM:
                self.models.popitem(last=False)
        self.models[model] = None
        self.models.move_to_end(model)
        return seconds

    def trailer(self) -> list[tuple[str, str | bytes]]:
        free = 1000 * (ROOM - len(self.models)) if self._tells else 0
        return said(len(self.queue), *self.models, free=free)


Choose = Callable[[str], str]


def loads(shelves: Sequence[Shelf], clock: Clock, replicas: LoadBalancer, choose: Choose, callers: int) -> int:
    """How often a model had to be loaded, for requests for all models alike by callers who ask one after the other."""
    chance, ends, numbers, asked = random.Random(4), list[tuple[float, int, Shelf]](), itertools.count(), 0
    by_address = {shelf.address: shelf for shelf in shelves}

    def ask() -> None:
        nonlocal asked
        asked += 1
        model = chance.choice(MODELS)
        shelf = by_address[choose(model)]
        replicas.call_started(shelf.address, model)
        shelf.queue.append(model)
        if len(shelf.queue) == 1:
            serve(shelf)

    def serve(shelf: Shelf) -> None:
        heapq.heappush(ends, (clock.now + shelf.serve(shelf.queue[0]), next(numbers), shelf))

    for _ in range(callers):
        ask()
    while ends:
        clock.now, _, shelf = heapq.heappop(ends)
        model = shelf.queue.popleft()
        replicas.call_ended(shelf.address, model, shelf.trailer())
        if shelf.queue:
            serve(shelf)
        if asked < REQUESTS:
            ask()
    return sum(shelf.loads for shelf in shelves)


@pytest.mark.parametrize("callers", [1, 16, 64, 256])
@pytest.mark.parametrize("tells", [True, False], ids=["room told", "room not told"])
def test_models_stay_where_they_are_loaded(replicas: LoadBalancer, clock: Clock, callers: int, *, tells: bool) -> None:
    shelves = [Shelf(address, tells=tells) for address in (A, B, C)]
    endpoints = [Endpoint(address=shelf.address, free_bytes=1000 * ROOM * tells) for shelf in shelves]

    def choose(model: str) -> str:
        return replicas.choose(model, endpoints)

    assert loads(shelves, clock, replicas, choose, callers) <= REQUESTS * 0.02


def test_by_turns_they_are_loaded_for_most_calls(replicas: LoadBalancer, clock: Clock) -> None:
    shelves = [Shelf(address, tells=True) for address in (A, B, C)]
    turns = itertools.cycle([A, B, C])
    assert loads(shelves, clock, replicas, lambda _: next(turns), 16) > REQUESTS * 0.6
