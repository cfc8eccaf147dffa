"""Counts fetched bytes of a request against the same quota as its body."""

from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gateway.limits.quotas import Meter

_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def use_meter(meter: Meter | None) -> Iterator[None]:
    """Uses the meter within the block; None if bytes are not limited."""
    token = _current.set(meter)
    try:
        yield
    finally:
        _current.reset(token)


async def count_bytes(content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Passes the chunks through and counts them.

    Raises:
        Overloaded: BYTES_QUOTA.
    """
    meter = _current.get()
    async for piece in content:
        if meter:
            await meter.add(len(piece))
        yield piece
