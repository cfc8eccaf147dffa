"""Balances calls over the addresses of an expert, by loaded models, queue length and free memory."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from protos.hugginggpt.internal.v1.selector_pb2 import Endpoint

QUEUE, LOADED, FREE = "expert-queue", "expert-loaded", "expert-free-bytes"
"""Trailing metadata of Infer: calls queued or running; IDs of loaded models, comma-separated; free bytes of memory."""

LONG_QUEUE = 8
"""Calls at the least busy replica that has the model loaded, from which the model may be loaded at another one."""

LOAD_RATIO = 4
"""How many times fewer calls that other replica must have."""

UNUSED_SECONDS = 30.0
"""A model not called for this long may be evicted for another."""

FRESH_SECONDS = 10.0
"""How long a replica's own report overrides the selector's data."""

FORGET_SECONDS = 600.0
"""A replica that was in no selection for this long is forgotten."""

Clock = Callable[[], float]
Trailer = Iterable[tuple[str, str | bytes]]


class Replica:
    """Load and loaded models of one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls: Counter[str] = Counter()
        """Calls of this process in flight, by model."""
        self.free_bytes = 0
        """Free device memory; 0: unknown."""
        self.selected_at = 0.0
        """When a selection last contained it, in seconds of the clock."""
        self.reported_at = -FRESH_SECONDS
        """When it last reported its state."""
        self.refuses_until = 0.0
        """End of its Retry-After."""
        self._loaded: set[str] = set()
        self._used: dict[str, float] = {}
        """When this process last called each model."""
        self._other_calls = 0
        self._reports_free_memory = self._evicts = False

    def has_model(self, model: str) -> bool:
        """Whether a model is loaded, or is being loaded for a call of this process."""
        return model in self._loaded or model in self.calls

    @property
    def model_count(self) -> int:
        """Number of loaded and loading models."""
        return len(self._loaded | self.calls.keys())

    def free_after_loading(self, sizes: Mapping[str, int]) -> int:
        """Free bytes once the models that are being loaded are in memory.

        Args:
            sizes: of models, as far as known; an unknown one is assumed to be as large as the largest.
        """
        largest = max(sizes.values(), default=0)
        return self.free_bytes - sum(sizes.get(model, largest) for model in self.calls.keys() - self._loaded)

    @property
    def load(self) -> int:
        """Calls in flight, of this process and others."""
        return self._other_calls + self.calls.total()

    @property
    def loading(self) -> bool:
        """Whether a model is being loaded for a call of this process."""
        return not self._loaded >= self.calls.keys()

    def can_load(self, model: str, sizes: Mapping[str, int], now: float) -> bool:
        """Whether another model can be loaded without evicting one in use."""
        if any(
            now - self._used.get(loaded, -UNUSED_SECONDS) >= UNUSED_SECONDS
            for loaded in self._loaded - self.calls.keys()
        ):
            return True
        if self._reports_free_memory:
            return self.free_after_loading(sizes) >= max(1, sizes.get(model, max(sizes.values(), default=0)))
        return not self._evicts

    def begin(self, model: str, now: float) -> None:
        """Counts a started call of this process."""
        self.calls[model] += 1
        self._used[model] = now

    def update_from_selection(self, model: str, endpoint: Endpoint) -> None:
        """Stores the selector's data of a model at this address."""
        (self._loaded.add if endpoint.loaded else self._loaded.discard)(model)
        self.free_bytes = endpoint.free_bytes
        self._other_calls = max(0, endpoint.queue - self.calls.total())

    def update_from_report(self, queue: int, loaded: str, free_bytes: int) -> dict[str, int]:
        """Stores the replica's own report; `queue` includes the calls of this process.

        Returns:
            The size of the one model that was loaded since the last report; empty if it cannot be inferred.
        """
        before, self._loaded = self._loaded, set(loaded.split(",")) if loaded else set()
        used, self.free_bytes = self.free_bytes - free_bytes, free_bytes
        self._other_calls = max(0, queue - self.calls.total())
        new = self._loaded - before
        self._reports_free_memory = self._reports_free_memory or free_bytes > 0
        self._evicts = self._evicts or not self._loaded >= before
        for model in self._used.keys() - self._loaded - self.calls.keys():
            del self._used[model]
        return dict.fromkeys(new, used) if len(new) == 1 and before < self._loaded and used > 0 else {}


class LoadBalancer:
    """Chooses replicas, and tracks their load.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._replicas: dict[str, Replica] = {}
        self._sizes: dict[str, int] = {}

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(self._replicas)

    def choose(self, model: str, endpoints: Sequence[Endpoint]) -> str:
        """The address that is to run a model.

        The least busy replica that has the model loaded; if none has, the one with most free memory. A model in demand
        is loaded at a further replica once those that have it are busy and that one is not.

        Args:
            model: its ID.
            endpoints: at least one, as the selector returned them.
        """
        known = [self._updated(model, endpoint) for endpoint in endpoints]
        if len(known) == 1:
            return known[0].address
        now = self._clock()
        open_ones = [replica for replica in known if replica.refuses_until <= now] or known
        cold = [replica for replica in open_ones if not replica.has_model(model)]
        if len(cold) == len(open_ones):
            return self._most_free_memory(model, cold).address
        holder = min((replica for replica in open_ones if replica.has_model(model)), key=lambda replica: replica.load)
        if holder.load >= LONG_QUEUE and not holder.loading:
            cold = [r for r in cold if r.load * LOAD_RATIO <= holder.load and r.can_load(model, self._sizes, now)]
            if cold:
                return self._most_free_memory(model, cold).address
        return holder.address

    def call_started(self, address: str, model: str) -> None:
        """Counts a started call; a model that is not loaded is assumed to be loading."""
        self._replica(address).begin(model, self._clock())

    def call_ended(self, address: str, model: str, trailer: Trailer = ()) -> None:
        """Counts an ended call; the trailing metadata of a reply reports the replica's state."""
        replica = self._replica(address)
        replica.calls[model] -= 1
        if not replica.calls[model]:
            del replica.calls[model]
        report = {key: value for key, value in trailer if key in {QUEUE, LOADED, FREE}}
        if LOADED in report:
            queue, free_bytes = _number(report.get(QUEUE)), _number(report.get(FREE))
            self._sizes |= replica.update_from_report(queue, str(report[LOADED]), free_bytes)
            replica.reported_at = self._clock()

    def refused(self, address: str, seconds: float) -> None:
        """Records a refusal with its Retry-After in seconds."""
        self._replica(address).refuses_until = self._clock() + seconds

    def forget(self) -> None:
        """Drops replicas that were in no selection for a long time."""
        before = self._clock() - FORGET_SECONDS
        for replica in list(self._replicas.values()):
            if replica.selected_at < before and not replica.calls:
                del self._replicas[replica.address]

    def _most_free_memory(self, model: str, replicas: Iterable[Replica]) -> Replica:
        """The best replica to load a model; a hash breaks ties, so that all orchestrators choose the same."""

        def cost(replica: Replica) -> tuple[int, int, int, bytes]:
            free = replica.free_after_loading(self._sizes)
            return -free, replica.model_count, replica.load, _tie_breaker(model, replica)

        return min(replicas, key=cost)

    def _updated(self, model: str, endpoint: Endpoint) -> Replica:
        replica = self._replica(endpoint.address)
        replica.selected_at = now = self._clock()
        if now - replica.reported_at >= FRESH_SECONDS:
            replica.update_from_selection(model, endpoint)
        return replica

    def _replica(self, address: str) -> Replica:
        replica = self._replicas.get(address)
        if replica is None:
            replica = self._replicas[address] = Replica(address)
        return replica


def _tie_breaker(model: str, replica: Replica) -> bytes:
    return blake2b(f"{model}\0{replica.address}".encode(), digest_size=8).digest()


def _number(text: str | bytes | None) -> int:
    return int(text) if text and text.isdigit() else 0
