"""Streams on their way in: hashed and written on threads while more of them comes."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

from services.common.artifacts.staging import Sink
from services.common.errors import InvalidRequest

BATCH_BYTES = 1024 * 1024
"""How much of a stream is hashed and written at once."""


async def poured(first: Sequence[bytes], rest: AsyncIterator[Sequence[bytes]], sink: Sink) -> tuple[str, int]:
    """Digest and size of a stream that has gone into the sink; meanwhile the next batch comes in."""
    digest, size = hashlib.sha256(), 0

    async def take(batch: Sequence[bytes]) -> None:
        await asyncio.gather(asyncio.to_thread(_hash, digest, batch), sink.write(batch))

    taking = asyncio.ensure_future(take(first))
    size = sum(map(len, first))
    try:
        async for batch in rest:
            size += sum(map(len, batch))
            await taking
            taking = asyncio.ensure_future(take(batch))
        await taking
    finally:
        drop(taking)
    return digest.hexdigest(), size


def _hash(digest: Any, batch: Sequence[bytes]) -> None:
    for piece in batch:
        digest.update(piece)


async def batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[Sequence[bytes]]:
    """A stream in batches of about BATCH_BYTES; only the last is smaller."""
    batch: list[bytes] = []
    size = 0
    async for chunk in chunks:
        batch.append(chunk)
        size += len(chunk)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def counted(chunks: AsyncIterable[bytes], limit: int, name: str) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise InvalidRequest(
                f"{name or 'the file'} is larger than the limit of {limit} bytes",
                reason="TOO_LARGE",
                remedy="send a smaller file, or ask the operator to raise the limit",
            )
        yield chunk


def drop(task: "asyncio.Future[Any]") -> None:
    """Ends a task whose outcome nobody waits for."""
    task.cancel()
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
