"""What a request brings in besides its body, counted with it."""

from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gateway.limits.quotas import Meter

_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered_by(meter: Meter | None) -> Iterator[None]:
    """Counts within the block; None where bytes are not limited."""
    token = _current.set(meter)
    try:
        yield
    finally:
        _current.reset(token)


async def metered(content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, counted before they are given on.

    Raises:
        Overloaded: BYTES_QUOTA.
    """
    meter = _current.get()
    async for piece in content:
        if meter:
            await meter.take(len(piece))
        yield piece
