"""The store.

An object {tenant}/{sha256} has a sidecar {tenant}/{sha256}.json with media type and name, since a local folder keeps no
attributes. Streams go to _staging/ and get their name once their digest is known. In an object store, objects carry a
type and a disposition that are safe to give to a browser.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import obstore
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts.backends import opened
from services.common.artifacts.disposition import describing
from services.common.artifacts.keys import ARTIFACT, check_tenant, key_of
from services.common.artifacts.staging import STAGING, FileSink, ObjectSink, Sink
from services.common.artifacts.upload import BATCH_BYTES, batches, counted, drop, poured
from services.common.errors import CorruptData, NotFound
from services.common.kv_store import Notes
from services.common.store_errors import answering
from services.common.wait import awaited

INLINE_BYTES = 256 * 1024
"""Longest value that travels, and is kept, in messages; a longer one is an artifact."""

THREAD_BYTES = 1024 * 1024
READ_BYTES = 4 * 1024 * 1024
"""How much of an object is read at once; while it is sent, as much is read ahead."""

PAGE = 500
"""Objects listed at once."""


class ArtifactStore:
    """The content-addressed store. Every method raises Unavailable if the store does not answer."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    @classmethod
    def open(cls, url: str) -> "ArtifactStore":
        """Opens file:///folder (made if absent) or s3://bucket/prefix, to which AWS_ variables give access.

        Raises:
            Unavailable: the folder cannot be made or written.
            InvalidRequest: the URL is of no known kind.
        """
        return cls(*opened(url))

    @classmethod
    async def reached(cls, url: str) -> "ArtifactStore":
        """The same, once it answers.

        Raises:
            Unavailable: it does not, and has been waited for.
        """
        store = cls.open(url)
        await awaited("the artifact store", store.check)
        return store

    async def check(self) -> None:
        """Whether it is there and knows this server."""
        with answering():
            await anext(aiter(obstore.list(self._store, prefix=STAGING, chunk_size=1)), None)

    async def put(self, tenant: str, content: bytes, *, media_type: str, name: str) -> Artifact:
        """Keeps bytes; writing the same again is harmless."""
        artifact = Artifact(sha256=await _digest(content), media_type=media_type, size_bytes=len(content), name=name)
        with answering():
            attributes = self._attributes(artifact)
            await obstore.put_async(self._store, key_of(tenant, artifact.sha256), content, attributes=attributes)
        await self._describe(tenant, artifact)
        return artifact

    async def put_stream(
        self, tenant: str, chunks: AsyncIterable[bytes], *, media_type: str, name: str, limit: int
    ) -> Artifact:
        """Keeps a stream of bytes in constant memory; one that fails or is cancelled leaves nothing.

        Args:
            tenant: whose it is.
            chunks: the bytes.
            media_type: IANA media type.
            name: what a person would call it.
            limit: most bytes taken.

        Raises:
            InvalidRequest: TOO_LARGE if there are more bytes than the limit.
        """
        check_tenant(tenant)
        rest = batches(counted(chunks, limit, name))
        first: Sequence[bytes] = await anext(rest, [])
        if sum(map(len, first)) < BATCH_BYTES:
            return await self.put(tenant, b"".join(first), media_type=media_type, name=name)
        artifact = Artifact(media_type=media_type, name=name)
        sink = self._sink(artifact)
        try:
            artifact.sha256, artifact.size_bytes = await poured(first, rest, sink)
            await sink.keep(key_of(tenant, artifact.sha256))
        except BaseException:
            await sink.abandon()
            raise
        await self._describe(tenant, artifact)
        return artifact

    async def head(self, tenant: str, sha256: str) -> Artifact:
        """What is known of an artifact.

        Raises:
            NotFound: ARTIFACT, the tenant has none of that digest.
        """
        known = json.loads(await self._read(key_of(tenant, sha256) + ".json", sha256))
        return Artifact(
            sha256=sha256, media_type=known["media_type"], size_bytes=known["size_bytes"], name=known["name"]
        )

    async def holds(self, tenant: str, sha256: str) -> bool:
        """Whether the tenant has an artifact of that digest, its bytes and what is known of it."""
        key = key_of(tenant, sha256)
        return all([await self._written(each) for each in (key, key + ".json")])

    async def get(self, tenant: str, sha256: str) -> bytes:
        """The bytes, checked against their digest.

        Raises:
            NotFound: ARTIFACT, the tenant has none of that digest.
            CorruptData: the stored bytes have another digest.
        """
        content = await self._read(key_of(tenant, sha256), sha256)
        if await _digest(content) != sha256:
            raise _corrupt(sha256)
        return content

    async def stream(
        self, tenant: str, sha256: str, *, start: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in pieces, or those of a part; the whole ends with CorruptData if its digest is another one."""
        key, digest = key_of(tenant, sha256), hashlib.sha256()
        size = (await self.head(tenant, sha256)).size_bytes
        end = size if length is None else min(size, start + length)
        async for piece in self._pieces(key, sha256, start, end):
            await asyncio.to_thread(digest.update, piece)
            yield piece
        if (start, end) == (0, size) and digest.hexdigest() != sha256:
            raise _corrupt(sha256)

    def path(self, tenant: str, sha256: str) -> Path | None:
        """The file of an artifact where the store is a local folder, else None. The file may not exist."""
        return self._folder / key_of(tenant, sha256) if self._folder else None

    async def presigned(self, tenant: str, sha256: str, lasting: timedelta) -> str | None:
        """A URL by which anybody can get the bytes from the store itself for that time; None if it has no such URLs."""
        if not isinstance(self._store, S3Store | GCSStore | AzureStore):
            return None
        with answering():
            return await obstore.sign_async(self._store, "GET", key_of(tenant, sha256), lasting)

    async def last_written_before(self, moment: float) -> AsyncIterator[list[tuple[str, str]]]:
        """(tenant, sha256) of what was last written before then, in seconds since the epoch; some at a time."""
        async for keys in self._old("", moment):
            yield sorted({(found[1], found[2]) for key in keys if (found := ARTIFACT.fullmatch(key))})

    async def discard(self, tenant: str, sha256: str, *, last_written_before: float) -> bool:
        """Removes an artifact, unless it was written again; tells whether it did."""
        keys = (key_of(tenant, sha256) + ".json", key_of(tenant, sha256))
        if max([await self._written(key) for key in keys]) >= last_written_before:
            return False
        for key in keys:
            await self._remove(key)
        return True

    async def discard_unfinished(self, *, last_written_before: float) -> None:
        """Removes what is left of streams that never came to their end."""
        async for keys in self._old(f"{STAGING}/", last_written_before):
            for key in keys:
                await self._remove(key)

    def notes(self, kind: str) -> Notes:
        """What a service keeps for itself in the same store."""
        return Notes(self._store, kind)

    def _sink(self, artifact: Artifact) -> Sink:
        return FileSink(self._folder) if self._folder else ObjectSink(self._store, self._attributes(artifact))

    def _attributes(self, artifact: Artifact) -> Any:
        """What an object is given out with by a store that gives out objects; a folder keeps none."""
        if self._folder:
            return None
        sent = describing(artifact, shown=False)
        return {"Content-Type": sent["content-type"], "Content-Disposition": sent["content-disposition"]}

    async def _describe(self, tenant: str, artifact: Artifact) -> None:
        known = {"media_type": artifact.media_type, "size_bytes": artifact.size_bytes, "name": artifact.name}
        with answering():
            content = json.dumps(known).encode()
            await obstore.put_async(self._store, key_of(tenant, artifact.sha256) + ".json", content)

    async def _pieces(self, key: str, sha256: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Reads one piece ahead: each is a request of its own, so that a slow reader holds none open."""
        ahead = asyncio.ensure_future(self._piece(key, sha256, start, end))
        try:
            for at in range(start, end, READ_BYTES):
                piece = await ahead
                ahead = asyncio.ensure_future(self._piece(key, sha256, at + READ_BYTES, end))
                yield piece
            await ahead
        finally:
            drop(ahead)

    async def _piece(self, key: str, sha256: str, at: int, end: int) -> bytes:
        if at >= end:
            return b""
        with answering(partial(_missing, sha256)):
            return bytes(await obstore.get_range_async(self._store, key, start=at, end=min(at + READ_BYTES, end)))

    async def _old(self, prefix: str, moment: float) -> AsyncIterator[list[str]]:
        """Keys of objects last written before then, some at a time."""
        with answering():
            async for page in obstore.list(self._store, prefix=prefix, chunk_size=PAGE):
                yield [entry["path"] for entry in page if entry["last_modified"].timestamp() < moment]

    async def _written(self, key: str) -> float:
        """When an object was last written; 0 if it is not there."""
        try:
            with answering(FileNotFoundError):
                return (await obstore.head_async(self._store, key))["last_modified"].timestamp()
        except FileNotFoundError:
            return 0.0

    async def _remove(self, key: str) -> None:
        try:
            with answering(FileNotFoundError):
                await obstore.delete_async(self._store, key)
        except FileNotFoundError:
            return

    async def _read(self, key: str, sha256: str) -> bytes:
        with answering(partial(_missing, sha256)):
            result = await obstore.get_async(self._store, key)
            return bytes(await result.bytes_async())


async def _digest(content: bytes) -> str:
    """Of long content on another thread: a megabyte takes a millisecond."""
    if len(content) > THREAD_BYTES:
        return (await asyncio.to_thread(hashlib.sha256, content)).hexdigest()
    return hashlib.sha256(content).hexdigest()


def _missing(sha256: str) -> NotFound:
    return NotFound(
        f"there is no artifact {sha256}", reason="ARTIFACT", remedy="send the file again, or check the digest"
    )


def _corrupt(sha256: str) -> CorruptData:
    return CorruptData(f"the stored bytes of artifact {sha256} have changed", remedy="send the file again")
