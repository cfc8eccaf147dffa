"""What all roles of a process share of an endpoint, for as long as one of them has it open."""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from services.llm.circuit_breaker import Breaker
from services.llm.endpoint_capabilities import Dialect
from services.llm.settings import LlmSettings
from services.llm.token_estimate import Estimate

T = TypeVar("T")


class Holders(Generic[T]):
    """Things by key, each made for its first holder and dropped with its last."""

    def __init__(self) -> None:
        self._things: dict[Hashable, T] = {}
        self._holders: dict[Hashable, int] = {}

    @contextmanager
    def holding(self, key: Hashable, make: Callable[[], T]) -> Iterator[T]:
        """The thing within the block."""
        if key not in self._things:
            self._things[key] = make()
        self._holders[key] = self._holders.get(key, 0) + 1
        try:
            yield self._things[key]
        finally:
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._things[key], self._holders[key]


@dataclass
class Known:
    """What is known of one model at one endpoint."""

    breaker: Breaker
    dialect: Dialect = field(default_factory=Dialect)
    estimate: Estimate = field(default_factory=Estimate)


_SLOTS = Holders[asyncio.Semaphore]()
_KNOWN = Holders[Known]()


@contextmanager
def shared(settings: LlmSettings, clock: Callable[[], float]) -> Iterator[tuple[asyncio.Semaphore, Known]]:
    """The endpoint's slots, and what is known of the model there, within the block."""
    loop = asyncio.get_running_loop()  # slots belong to one loop, and the breaker to its clock
    with (
        _SLOTS.holding((loop, settings.base_url), lambda: asyncio.Semaphore(settings.concurrency)) as slots,
        _KNOWN.holding((loop, settings.base_url, settings.model), lambda: Known(Breaker(clock))) as known,
    ):
        yield slots, known
