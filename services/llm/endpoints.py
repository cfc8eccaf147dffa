"""State of LLM endpoints, shared by all roles of a process that have the endpoint open."""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from services.llm.circuit_breaker import CircuitBreaker
from services.llm.endpoint_capabilities import EndpointCapabilities
from services.llm.settings import LlmSettings
from services.llm.token_estimate import TokenEstimator

T = TypeVar("T")


class ReferenceCounted(Generic[T]):
    """Objects by key, each created for its first user and dropped after its last."""

    def __init__(self) -> None:
        self._objects: dict[Hashable, T] = {}
        self._users: dict[Hashable, int] = {}

    @contextmanager
    def acquire(self, key: Hashable, make: Callable[[], T]) -> Iterator[T]:
        """Provides the object of the key for the block."""
        if key not in self._objects:
            self._objects[key] = make()
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield self._objects[key]
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._objects[key], self._users[key]


@dataclass
class ModelState:
    """State of one model at one endpoint."""

    breaker: CircuitBreaker
    capabilities: EndpointCapabilities = field(default_factory=EndpointCapabilities)
    estimator: TokenEstimator = field(default_factory=TokenEstimator)


_SLOTS = ReferenceCounted[asyncio.Semaphore]()
_STATES = ReferenceCounted[ModelState]()


@contextmanager
def shared_state(settings: LlmSettings, clock: Callable[[], float]) -> Iterator[tuple[asyncio.Semaphore, ModelState]]:
    """Provides the concurrency slots of the endpoint and the state of the model for the block."""
    loop = asyncio.get_running_loop()  # slots belong to one loop, and the breaker to its clock
    with (
        _SLOTS.acquire((loop, settings.base_url), lambda: asyncio.Semaphore(settings.concurrency)) as slots,
        _STATES.acquire((loop, settings.base_url, settings.model), lambda: ModelState(CircuitBreaker(clock))) as state,
    ):
        yield slots, state
