"""Streaming uploads: hashing and writing a stream under a temporary name until its digest is known."""

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import uuid4

import obstore
from obstore.store import ObjectStore

from services.common.errors import InvalidRequest, ServiceError
from services.common.object_store import translate_errors

STAGING = "_staging"
"""Prefix of temporary names."""

BATCH_BYTES = 1024 * 1024
"""How much of a stream is hashed and written at once."""

PART_BYTES = 5 * 1024 * 1024
"""Size of the parts of a multipart upload."""
CONCURRENT_PARTS = 2

ABORT_SECONDS = 10.0
"""How long an object store may take to discard an aborted upload."""


class Sink(Protocol):
    """Destination of one stream, ended by commit or abort. Every method but abort raises Unavailable."""

    async def write(self, chunks: Sequence[bytes]) -> None:
        """Appends chunks."""
        ...

    async def commit(self, key: str) -> None:
        """Stores the stream under a key."""
        ...

    async def abort(self) -> None:
        """Discards the stream."""
        ...


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes files in a folder, by key and in this order; none is visible before it is complete."""
    for key, content in contents.items():
        target, partial = folder / key, folder / STAGING / uuid4().hex
        try:
            _with_parent(partial, partial.write_bytes, content)
            _with_parent(target, partial.replace, target)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def _with_parent(path: Path, write: Callable[[Any], object], argument: Any) -> None:
    """Writes a path; creates its folder only if it is missing."""
    try:
        write(argument)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(argument)


class FileSink:
    """Writes to a file, in threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / STAGING / uuid4().hex
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._has_ended = False

    async def write(self, chunks: Sequence[bytes]) -> None:
        with translate_errors():
            await asyncio.to_thread(self._write, chunks)

    async def commit(self, key: str) -> None:
        with translate_errors():
            await asyncio.to_thread(self._commit, self._folder / key)

    async def abort(self) -> None:
        await asyncio.to_thread(self._abort)

    def _write(self, chunks: Sequence[bytes]) -> None:
        with self._lock:
            if self._has_ended:
                return
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("xb")
            self._file.writelines(chunks)

    def _commit(self, target: Path) -> None:
        with self._lock:
            if self._file:
                self._file.close()
            target.parent.mkdir(parents=True, exist_ok=True)
            self._path.replace(target)
            self._has_ended = True

    def _abort(self) -> None:
        with self._lock, suppress(OSError):
            self._has_ended = True
            self._path.unlink(missing_ok=True)
            if self._file:
                self._file.close()


class ObjectSink:
    """Writes to an object store as a multipart upload; an aborted one leaves no parts.

    Args:
        store: the destination.
        attributes: HTTP headers stored with the object.
    """

    def __init__(self, store: ObjectStore, attributes: Mapping[str, str]) -> None:
        self._store = store
        self._staged_key = f"{STAGING}/{uuid4().hex}"
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._is_aborted = False
        self._upload = asyncio.create_task(self._put(dict(attributes)))

    async def write(self, chunks: Sequence[bytes]) -> None:
        await self._enqueue(b"".join(chunks))

    async def commit(self, key: str) -> None:
        await self._enqueue(None)
        await self._upload
        with translate_errors():
            await obstore.rename_async(self._store, self._staged_key, key)

    async def abort(self) -> None:
        self._is_aborted = True
        with suppress(asyncio.QueueFull):
            self._chunks.put_nowait(None)
        await asyncio.wait((self._upload,), timeout=ABORT_SECONDS)
        self._upload.cancel()
        if self._upload.done() and not self._upload.exception():  # the whole object had been sent
            with suppress(ServiceError), translate_errors():
                await obstore.delete_async(self._store, self._staged_key)

    async def _put(self, attributes: dict[str, str]) -> None:
        with translate_errors():
            await obstore.put_async(
                self._store,
                self._staged_key,
                self._dequeue(),
                attributes=attributes,
                chunk_size=PART_BYTES,
                max_concurrency=CONCURRENT_PARTS,
            )

    async def _dequeue(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None and not self._is_aborted:
            yield chunk
        if self._is_aborted:
            raise AbortedError  # makes obstore discard the parts that it has sent

    async def _enqueue(self, chunk: bytes | None) -> None:
        enqueued = asyncio.ensure_future(self._chunks.put(chunk))
        try:
            await asyncio.wait((enqueued, self._upload), return_when=asyncio.FIRST_COMPLETED)
        finally:
            enqueued.cancel()
        if self._upload.done() and not (chunk is None and enqueued.done()):
            await self._upload


class AbortedError(Exception):
    """The upload was aborted."""


async def write_hashed(first: Sequence[bytes], rest: AsyncIterator[Sequence[bytes]], sink: Sink) -> tuple[str, int]:
    """Writes a stream's batches to a sink while the next batch arrives; returns its SHA-256 digest and size."""
    digest, size = hashlib.sha256(), 0

    async def write(batch: Sequence[bytes]) -> None:
        await asyncio.gather(asyncio.to_thread(_hash, digest, batch), sink.write(batch))

    writing = asyncio.ensure_future(write(first))
    size = sum(map(len, first))
    try:
        async for batch in rest:
            size += sum(map(len, batch))
            await writing
            writing = asyncio.ensure_future(write(batch))
        await writing
    finally:
        cancel_task(writing)
    return digest.hexdigest(), size


def _hash(digest: Any, batch: Sequence[bytes]) -> None:
    for chunk in batch:
        digest.update(chunk)


async def batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[Sequence[bytes]]:
    """Groups chunks into batches of at least BATCH_BYTES; only the last may be smaller."""
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


async def limit_size(chunks: AsyncIterable[bytes], limit: int, name: str) -> AsyncIterator[bytes]:
    """Passes chunks on; raises InvalidRequest, TOO_LARGE, once they exceed a limit in bytes."""
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


def cancel_task(task: "asyncio.Future[Any]") -> None:
    """Cancels a task whose result or exception nothing awaits."""
    task.cancel()
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
