"""What each address of an expert holds, as far as is known here, and which of them is to run a model."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from protos.hugginggpt.v1.model_pb2 import Endpoint

QUEUE, LOADED, FREE = "expert-queue", "expert-loaded", "expert-free-bytes"
"""Trailing metadata of Infer: calls waiting or running; ids of loaded models, with commas between; bytes free."""

LONG_QUEUE = 8
"""Calls at the least busy of those that hold a model, from which on it may be loaded elsewhere too."""

MUCH_LESS = 4
"""How many times fewer calls there must be where it is not yet loaded."""

UNUSED_SECONDS = 30.0
"""After which a model is one that may give way to a hot one."""

FRESH_SECONDS = 10.0
"""How long what an address said itself counts more than what a selection says of it."""

FORGET_SECONDS = 600.0
"""After which an address that nobody mentions is forgotten."""

Clock = Callable[[], float]
Trailer = Iterable[tuple[str, str | bytes]]


class Replica:
    """One address, and what is going on there."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls: Counter[str] = Counter()
        """Our own under way, by model."""
        self.free_bytes = 0
        """0: not known."""
        self.mentioned = 0.0
        self.heard = -FRESH_SECONDS
        """When it last said itself how it is."""
        self.full_until = 0.0
        """When it takes calls again."""
        self._loaded: set[str] = set()
        self._used: dict[str, float] = {}
        """When calls of ours were last made, by model."""
        self._others = 0
        self._tells_room = self._evicts = False

    def holds(self, model: str) -> bool:
        """Whether a model is loaded there, or is being loaded for a call of ours."""
        return model in self._loaded or model in self.calls

    @property
    def held(self) -> int:
        """How many models are there."""
        return len(self._loaded | self.calls.keys())

    def room(self, sizes: Mapping[str, int]) -> int:
        """Bytes free once what is being loaded is there.

        Args:
            sizes: of models, as far as known; one that is not is taken for as large as the largest.
        """
        largest = max(sizes.values(), default=0)
        return self.free_bytes - sum(sizes.get(model, largest) for model in self.calls.keys() - self._loaded)

    @property
    def load(self) -> int:
        """Calls there, of others and ours."""
        return self._others + self.calls.total()

    @property
    def loading(self) -> bool:
        """Whether a model is being loaded for a call of ours."""
        return not self._loaded >= self.calls.keys()

    def takes(self, model: str, sizes: Mapping[str, int], now: float) -> bool:
        """Whether one more model can be loaded there without one in use being thrown out."""
        if any(
            now - self._used.get(held, -UNUSED_SECONDS) >= UNUSED_SECONDS for held in self._loaded - self.calls.keys()
        ):
            return True
        if self._tells_room:
            return self.room(sizes) >= max(1, sizes.get(model, max(sizes.values(), default=0)))
        return not self._evicts

    def begin(self, model: str, now: float) -> None:
        """A call of ours is made there."""
        self.calls[model] += 1
        self._used[model] = now

    def said_of(self, model: str, endpoint: Endpoint) -> None:
        """What the selector knows of it."""
        (self._loaded.add if endpoint.loaded else self._loaded.discard)(model)
        self.free_bytes = endpoint.free_bytes
        self._others = max(0, endpoint.queue - self.calls.total())

    def says(self, queue: int, loaded: str, free_bytes: int) -> dict[str, int]:
        """What it says itself; ours that are under way are in its queue.

        Returns:
            The size of the model that was loaded since it was last heard, where that is clear.
        """
        before, self._loaded = self._loaded, set(loaded.split(",")) if loaded else set()
        used, self.free_bytes = self.free_bytes - free_bytes, free_bytes
        self._others = max(0, queue - self.calls.total())
        new = self._loaded - before
        self._tells_room = self._tells_room or free_bytes > 0
        self._evicts = self._evicts or not self._loaded >= before
        for model in self._used.keys() - self._loaded - self.calls.keys():
            del self._used[model]
        return dict.fromkeys(new, used) if len(new) == 1 and before < self._loaded and used > 0 else {}


class Replicas:
    """All addresses of experts that are spoken of.

    Args:
        clock: seconds that only grow.
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

        The least busy that holds it; a model that is cold goes where most room is. One that is hot goes to a cold
        replica too once those that hold it are busy, and that one is not.

        Args:
            model: its id.
            endpoints: at least one, as the selector gave them.
        """
        known = [self._mentioned(model, endpoint) for endpoint in endpoints]
        if len(known) == 1:
            return known[0].address
        now = self._clock()
        open_ones = [replica for replica in known if replica.full_until <= now] or known
        cold = [replica for replica in open_ones if not replica.holds(model)]
        if len(cold) == len(open_ones):
            return self._roomiest(model, cold).address
        holder = min((replica for replica in open_ones if replica.holds(model)), key=lambda replica: replica.load)
        if holder.load >= LONG_QUEUE and not holder.loading:
            cold = [r for r in cold if r.load * MUCH_LESS <= holder.load and r.takes(model, self._sizes, now)]
            if cold:
                return self._roomiest(model, cold).address
        return holder.address

    def begun(self, address: str, model: str) -> None:
        """A call of ours is made there: if the model is not loaded it will be."""
        self._replica(address).begin(model, self._clock())

    def ended(self, address: str, model: str, trailer: Trailer = ()) -> None:
        """It has ended; with a reply came how the address is now."""
        replica = self._replica(address)
        replica.calls[model] -= 1
        if not replica.calls[model]:
            del replica.calls[model]
        said = {key: value for key, value in trailer if key in {QUEUE, LOADED, FREE}}
        if LOADED in said:
            self._sizes |= replica.says(_number(said.get(QUEUE)), str(said[LOADED]), _number(said.get(FREE)))
            replica.heard = self._clock()

    def full(self, address: str, seconds: float) -> None:
        """It takes no calls for a while."""
        self._replica(address).full_until = self._clock() + seconds

    def forget(self) -> None:
        """Drops addresses that nobody has mentioned in a long time."""
        before = self._clock() - FORGET_SECONDS
        for replica in list(self._replicas.values()):
            if replica.mentioned < before and not replica.calls:
                del self._replicas[replica.address]

    def _roomiest(self, model: str, replicas: Iterable[Replica]) -> Replica:
        """Where a model is best loaded; of equals every orchestrator takes the same."""

        def merit(replica: Replica) -> tuple[int, int, int, bytes]:
            return -replica.room(self._sizes), replica.held, replica.load, _lot(model, replica)

        return min(replicas, key=merit)

    def _mentioned(self, model: str, endpoint: Endpoint) -> Replica:
        replica = self._replica(endpoint.address)
        replica.mentioned = now = self._clock()
        if now - replica.heard >= FRESH_SECONDS:
            replica.said_of(model, endpoint)
        return replica

    def _replica(self, address: str) -> Replica:
        replica = self._replicas.get(address)
        if replica is None:
            replica = self._replicas[address] = Replica(address)
        return replica


def _lot(model: str, replica: Replica) -> bytes:
    return blake2b(f"{model}\0{replica.address}".encode(), digest_size=8).digest()


def _number(text: str | bytes | None) -> int:
    return int(text) if text and text.isdigit() else 0
