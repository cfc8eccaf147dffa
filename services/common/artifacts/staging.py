"""Streams on their way into a store: kept apart under a name of their own until their digest is known."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol
from uuid import uuid4

import obstore
from obstore.store import ObjectStore

from services.common.errors import ServiceError
from services.common.store_errors import answering

STAGING = "_staging"
PART_BYTES = 5 * 1024 * 1024
PARTS_AT_ONCE = 2
ABANDON_SECONDS = 10.0
"""How long a store may take to forget what it had of a stream."""


class Sink(Protocol):
    """Takes a stream; ends with keep or abandon. Every method but abandon raises Unavailable."""

    async def write(self, pieces: Sequence[bytes]) -> None: ...

    async def keep(self, key: str) -> None:
        """Gives it its name."""
        ...

    async def abandon(self) -> None: ...


class FileSink:
    """Writes a file on threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / STAGING / uuid4().hex
        self._file: BinaryIO | None = None
        self._turn = threading.Lock()
        self._ended = False

    async def write(self, pieces: Sequence[bytes]) -> None:
        with answering():
            await asyncio.to_thread(self._write, pieces)

    async def keep(self, key: str) -> None:
        with answering():
            await asyncio.to_thread(self._keep, self._folder / key)

    async def abandon(self) -> None:
        await asyncio.to_thread(self._abandon)

    def _write(self, pieces: Sequence[bytes]) -> None:
        with self._turn:
            if self._ended:
                return
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("xb")
            self._file.writelines(pieces)

    def _keep(self, target: Path) -> None:
        with self._turn:
            if self._file:
                self._file.close()
            target.parent.mkdir(parents=True, exist_ok=True)
            self._path.replace(target)
            self._ended = True

    def _abandon(self) -> None:
        with self._turn, suppress(OSError):
            self._ended = True
            self._path.unlink(missing_ok=True)
            if self._file:
                self._file.close()


class ObjectSink:
    """Sends parts to an object store; a stream that is abandoned leaves no parts there.

    Args:
        store: where to.
        attributes: what the object is given out with.
    """

    def __init__(self, store: ObjectStore, attributes: Mapping[str, str]) -> None:
        self._store = store
        self._staged = f"{STAGING}/{uuid4().hex}"
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._abandoned = False
        self._upload = asyncio.create_task(self._put(dict(attributes)))

    async def write(self, pieces: Sequence[bytes]) -> None:
        await self._offer(b"".join(pieces))

    async def keep(self, key: str) -> None:
        await self._offer(None)
        await self._upload
        with answering():
            await obstore.rename_async(self._store, self._staged, key)

    async def abandon(self) -> None:
        self._abandoned = True
        with suppress(asyncio.QueueFull):
            self._pieces.put_nowait(None)
        await asyncio.wait((self._upload,), timeout=ABANDON_SECONDS)
        self._upload.cancel()
        if self._upload.done() and not self._upload.exception():  # all had been sent
            with suppress(ServiceError), answering():
                await obstore.delete_async(self._store, self._staged)

    async def _put(self, attributes: dict[str, str]) -> None:
        with answering():
            await obstore.put_async(
                self._store,
                self._staged,
                self._taken(),
                attributes=attributes,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

    async def _taken(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None and not self._abandoned:
            yield piece
        if self._abandoned:
            raise AbandonedError  # by which obstore gives up the parts it has sent

    async def _offer(self, piece: bytes | None) -> None:
        offering = asyncio.ensure_future(self._pieces.put(piece))
        try:
            await asyncio.wait((offering, self._upload), return_when=asyncio.FIRST_COMPLETED)
        finally:
            offering.cancel()
        if self._upload.done() and not (piece is None and offering.done()):
            await self._upload


class AbandonedError(Exception):
    """The rest of a stream will not come."""
