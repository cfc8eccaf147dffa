"""Choice of the address at which a model runs."""

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
def balancer(clock: Clock) -> LoadBalancer:
    return LoadBalancer(clock)


def endpoints_of(*given: tuple[str, bool, int, int]) -> list[Endpoint]:
    return [Endpoint(address=a, loaded=loaded, queue=queue, free_bytes=free) for a, loaded, queue, free in given]


def trailer_of(queue: int = 0, *loaded: str, free: int = 0) -> list[tuple[str, str | bytes]]:
    return [("expert-queue", str(queue)), ("expert-loaded", ",".join(loaded)), ("expert-free-bytes", str(free))]


def test_least_busy_replica_with_the_model_is_chosen(balancer: LoadBalancer) -> None:
    assert balancer.choose("m", endpoints_of((A, False, 0, 99), (B, True, 3, 0), (C, True, 2, 0))) == C


def test_cold_model_goes_to_the_replica_with_most_free_memory(balancer: LoadBalancer) -> None:
    assert balancer.choose("m", endpoints_of((A, False, 0, 5), (B, False, 3, 9), (C, False, 0, 0))) == B


def test_orchestrators_break_ties_in_the_same_way_but_differently_for_each_model(clock: Clock) -> None:
    cold = endpoints_of((A, False, 0, 0), (B, False, 0, 0), (C, False, 0, 0))
    chosen = {model: LoadBalancer(clock).choose(model, cold) for model in map(str, range(30))}
    again = {model: LoadBalancer(clock).choose(model, cold[::-1]) for model in chosen}
    assert again == chosen
    assert set(chosen.values()) == {A, B, C}


def test_burst_for_a_cold_model_loads_it_once(balancer: LoadBalancer) -> None:
    cold = endpoints_of((A, False, 0, 9), (B, False, 0, 9))
    first = balancer.choose("m", cold)
    for _ in range(50):
        balancer.call_started(first, "m")
        assert balancer.choose("m", cold) == first


def test_burst_of_cold_models_is_spread_over_the_replicas(balancer: LoadBalancer) -> None:
    cold, counted = endpoints_of((A, False, 0, 9), (B, False, 0, 9), (C, False, 0, 9)), []
    for model in map(str, range(9)):
        counted.append(balancer.choose(model, cold))
        balancer.call_started(counted[-1], model)
    assert sorted(counted) == [A, A, A, B, B, B, C, C, C]


def test_loading_model_counts_with_its_measured_size(balancer: LoadBalancer) -> None:
    one, two = endpoints_of((A, False, 0, 10), (B, False, 0, 9))
    balancer.choose("m", [one, two])
    balancer.call_started(A, "m")
    balancer.call_ended(A, "m", trailer_of(0, "m", free=6))
    assert balancer.choose("n", [one, two]) == B
    balancer.call_started(B, "n")
    assert balancer.choose("o", [one, two]) == A


def test_model_with_a_long_queue_is_loaded_at_a_second_replica(balancer: LoadBalancer) -> None:
    known = endpoints_of((A, True, 0, 0), (B, False, 0, 9))
    for _ in range(LONG_QUEUE):
        assert balancer.choose("m", known) == A
        balancer.call_started(A, "m")
    assert balancer.choose("m", known) == B


def test_model_with_a_long_queue_is_not_loaded_at_busy_replicas(balancer: LoadBalancer) -> None:
    known = endpoints_of((A, True, 3 * LONG_QUEUE, 0), (B, False, LONG_QUEUE, 9))
    assert balancer.choose("m", known) == A


def test_model_with_a_long_queue_evicts_only_unused_models(balancer: LoadBalancer, clock: Clock) -> None:
    hot, cold = endpoints_of((A, True, 2 * LONG_QUEUE, 0), (B, False, 0, 5))
    balancer.choose("m", [hot, cold])
    balancer.call_started(B, "other")
    balancer.call_ended(B, "other", trailer_of(0, "other", free=5))
    balancer.call_started(B, "other")
    balancer.call_ended(B, "other", trailer_of(0, "other"))
    clock.now += FRESH_SECONDS / 2
    assert balancer.choose("m", [hot, cold]) == A
    clock.now += UNUSED_SECONDS
    assert balancer.choose("m", [hot, cold]) == B


def test_recent_report_of_a_replica_overrides_the_selection(balancer: LoadBalancer, clock: Clock) -> None:
    stale = endpoints_of((A, False, 50, 0), (B, True, 40, 0))
    assert balancer.choose("m", stale) == B
    balancer.call_started(A, "m")
    balancer.call_ended(A, "m", trailer_of(1, "m"))
    assert balancer.choose("m", stale) == A
    clock.now += FRESH_SECONDS
    assert balancer.choose("m", stale) == B


def test_evicted_model_is_cold_again(balancer: LoadBalancer) -> None:
    known = endpoints_of((A, True, 0, 0), (B, False, 0, 1))
    balancer.call_started(A, "m")
    balancer.call_ended(A, "m", trailer_of(0, "other"))
    assert balancer.choose("m", known) == B


def test_refusing_address_is_skipped_until_its_retry_after(balancer: LoadBalancer, clock: Clock) -> None:
    known = endpoints_of((A, True, 0, 0), (B, False, 0, 0))
    balancer.choose("m", known)
    balancer.refused(A, 3.0)
    assert balancer.choose("m", known) == B
    assert balancer.choose("m", known[:1]) == A
    clock.now += 3.0
    assert balancer.choose("m", known) == A


def test_unselected_address_is_forgotten_once_its_calls_have_ended(balancer: LoadBalancer, clock: Clock) -> None:
    balancer.choose("m", endpoints_of((A, True, 0, 0), (B, False, 0, 0)))
    balancer.call_started(B, "m")
    clock.now += FORGET_SECONDS + 1
    balancer.forget()
    assert balancer.addresses == {B}
    balancer.call_ended(B, "m")
    balancer.forget()
    assert not balancer.addresses


@pytest.mark.parametrize("trailer", [[], trailer_of(), [("expert-loaded", b"\xff"), ("expert-queue", "many")]])
def test_invalid_trailer_is_ignored(balancer: LoadBalancer, trailer: list[tuple[str, str | bytes]]) -> None:
    balancer.call_started(A, "m")
    balancer.call_ended(A, "m", trailer)
    assert balancer.choose("m", endpoints_of((A, True, 0, 0))) == A


# ------------------------------------------------ three replicas, each with memory for three of eight models

MODELS = tuple(f"model-{number}" for number in range(8))
CAPACITY = 3
SERVE_SECONDS, LOAD_SECONDS = 0.001, 0.2
REQUESTS = 10_000


class SimulatedReplica:
    """A replica that runs one call at a time, and evicts the least recently used model.

    Args:
        address: host:port.
        reports_memory: it reports its free memory.
    """

    def __init__(self, address: str, *, reports_memory: bool) -> None:
        self.address = address
        self.models: OrderedDict[str, None] = OrderedDict()
        self.queue: deque[str] = deque()
        self.loads = 0
        self._reports_memory = reports_memory

    def serve(self, model: str) -> float:
        """Returns the seconds that the call takes."""
        seconds = SERVE_SECONDS
        if model not in self.models:
            self.loads += 1
            seconds += LOAD_SECONDS
            if len(self.models) == CAPACITY:
                self.models.popitem(last=False)
        self.models[model] = None
        self.models.move_to_end(model)
        return seconds

    def trailer(self) -> list[tuple[str, str | bytes]]:
        free = 1000 * (CAPACITY - len(self.models)) if self._reports_memory else 0
        return trailer_of(len(self.queue), *self.models, free=free)


Choose = Callable[[str], str]


def count_loads(
    simulated: Sequence[SimulatedReplica], clock: Clock, balancer: LoadBalancer, choose: Choose, callers: int
) -> int:
    """Number of model loads for random requests; each caller sends its next request after the last has ended."""
    ends: list[tuple[float, int, SimulatedReplica]] = []
    chooser, numbers, started = random.Random(4), itertools.count(), 0
    by_address = {replica.address: replica for replica in simulated}

    def start_call() -> None:
        nonlocal started
        started += 1
        model = chooser.choice(MODELS)
        replica = by_address[choose(model)]
        balancer.call_started(replica.address, model)
        replica.queue.append(model)
        if len(replica.queue) == 1:
            serve(replica)

    def serve(replica: SimulatedReplica) -> None:
        heapq.heappush(ends, (clock.now + replica.serve(replica.queue[0]), next(numbers), replica))

    for _ in range(callers):
        start_call()
    while ends:
        clock.now, _, replica = heapq.heappop(ends)
        model = replica.queue.popleft()
        balancer.call_ended(replica.address, model, replica.trailer())
        if replica.queue:
            serve(replica)
        if started < REQUESTS:
            start_call()
    return sum(replica.loads for replica in simulated)


@pytest.mark.parametrize("callers", [1, 16, 64, 256])
@pytest.mark.parametrize("reports_memory", [True, False], ids=["reports memory", "does not report memory"])
def test_models_are_rarely_reloaded(
    balancer: LoadBalancer, clock: Clock, callers: int, *, reports_memory: bool
) -> None:
    simulated = [SimulatedReplica(address, reports_memory=reports_memory) for address in (A, B, C)]
    endpoints = [Endpoint(address=each.address, free_bytes=1000 * CAPACITY * reports_memory) for each in simulated]

    def choose(model: str) -> str:
        return balancer.choose(model, endpoints)

    assert count_loads(simulated, clock, balancer, choose, callers) <= REQUESTS * 0.02


def test_round_robin_would_load_models_for_most_calls(balancer: LoadBalancer, clock: Clock) -> None:
    simulated = [SimulatedReplica(address, reports_memory=True) for address in (A, B, C)]
    addresses = itertools.cycle([A, B, C])
    assert count_loads(simulated, clock, balancer, lambda _: next(addresses), 16) > REQUESTS * 0.6
