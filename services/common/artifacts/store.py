"""The artifact store.

An object {tenant}/{sha256} is accompanied by {tenant}/{sha256}.json with its metadata (media type, size, name), because
files have no attributes. Streams are written to _staging/ and renamed once their digest is known. In an object store,
objects have a Content-Type and Content-Disposition that are safe for browsers.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import obstore
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts.downloads import download_headers
from services.common.artifacts.upload import (
    BATCH_BYTES,
    STAGING,
    FileSink,
    ObjectSink,
    Sink,
    batches,
    cancel_task,
    limit_size,
    write_files,
    write_hashed,
)
from services.common.call_context import TENANT, check_tenant
from services.common.errors import CorruptData, InvalidRequest, NotFound
from services.common.object_store import KeyValueStore, open_store, translate_errors
from services.common.supervision import until_available

INLINE_BYTES = 256 * 1024
"""Longest value that messages contain inline; a longer one is stored as an artifact."""

THREAD_BYTES = 1024 * 1024
"""Longer content is hashed in a thread: a megabyte takes a millisecond."""

READ_BYTES = 4 * 1024 * 1024
"""Size of one read. The next one is read ahead."""

PAGE = 500
"""Objects per page of a listing."""

_DIGEST = re.compile(r"[0-9a-f]{64}")

_ARTIFACT_KEY = re.compile(rf"({TENANT.pattern})/({_DIGEST.pattern})(?:\.json)?")
"""Matches the keys of artifacts and of their metadata; the groups are tenant and digest."""


def _artifact_key(tenant: str, sha256: str) -> str:
    """The key of an artifact.

    Raises:
        InvalidRequest: the digest or the tenant's name is malformed.
    """
    if not _DIGEST.fullmatch(sha256):
        raise InvalidRequest(
            "an artifact is named by 64 lower-case hexadecimal digits", remedy="use the sha256 of an artifact"
        )
    check_tenant(tenant)
    return f"{tenant}/{sha256}"


class ArtifactStore:
    """Content-addressed store of artifacts. Every method raises Unavailable if the object store does not answer."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    @classmethod
    def open(cls, url: str) -> "ArtifactStore":
        """Opens file:///folder, created if absent, or s3://bucket/prefix, with credentials from AWS_ variables.

        Raises:
            Unavailable: the folder cannot be created or written.
            InvalidRequest: the URL is not supported.
        """
        return cls(*open_store(url))

    @classmethod
    async def open_when_available(cls, url: str) -> "ArtifactStore":
        """Opens a store and waits until it answers.

        Raises:
            Unavailable: it does not answer in time.
        """
        store = cls.open(url)
        await until_available("the artifact store", store.check)
        return store

    async def check(self) -> None:
        """Checks that the store answers and grants access."""
        with translate_errors():
            await anext(aiter(obstore.list(self._store, prefix=STAGING, chunk_size=1)), None)

    async def put(self, tenant: str, content: bytes, *, media_type: str, name: str) -> Artifact:
        """Stores bytes; storing the same again is harmless."""
        artifact = Artifact(sha256=await _digest(content), media_type=media_type, size_bytes=len(content), name=name)
        key = _artifact_key(tenant, artifact.sha256)
        with translate_errors():
            if self._folder:  # both files in one thread, which takes half as long as two calls of obstore
                contents = {key: content, f"{key}.json": _metadata(artifact)}
                await asyncio.to_thread(write_files, self._folder, contents)
                return artifact
            attributes = self._attributes(artifact)
            await obstore.put_async(self._store, key, content, attributes=attributes)
        await self._put_metadata(tenant, artifact)
        return artifact

    async def put_stream(
        self, tenant: str, chunks: AsyncIterable[bytes], *, media_type: str, name: str, limit: int
    ) -> Artifact:
        """Stores a stream of bytes in constant memory; a failed or cancelled one leaves nothing.

        Args:
            tenant: its owner.
            chunks: the bytes.
            media_type: IANA media type.
            name: file name.
            limit: largest size in bytes.

        Raises:
            InvalidRequest: TOO_LARGE if there are more bytes than the limit.
        """
        check_tenant(tenant)
        rest = batches(limit_size(chunks, limit, name))
        first: Sequence[bytes] = await anext(rest, [])
        if sum(map(len, first)) < BATCH_BYTES:
            return await self.put(tenant, b"".join(first), media_type=media_type, name=name)
        artifact = Artifact(media_type=media_type, name=name)
        sink = self._sink(artifact)
        try:
            artifact.sha256, artifact.size_bytes = await write_hashed(first, rest, sink)
            await sink.commit(_artifact_key(tenant, artifact.sha256))
        except BaseException:
            await sink.abort()
            raise
        await self._put_metadata(tenant, artifact)
        return artifact

    async def head(self, tenant: str, sha256: str) -> Artifact:
        """The metadata of an artifact.

        Raises:
            NotFound: ARTIFACT, the tenant has none of that digest.
        """
        metadata = json.loads(await self._read(_artifact_key(tenant, sha256) + ".json", sha256))
        return Artifact(
            sha256=sha256, media_type=metadata["media_type"], size_bytes=metadata["size_bytes"], name=metadata["name"]
        )

    async def contains(self, tenant: str, sha256: str) -> bool:
        """Whether the tenant has an artifact, both its bytes and its metadata."""
        key = _artifact_key(tenant, sha256)
        return all([await self._written_at(each) for each in (key, key + ".json")])

    async def get(self, tenant: str, sha256: str) -> bytes:
        """The bytes, checked against their digest.

        Raises:
            NotFound: ARTIFACT, the tenant has none of that digest.
            CorruptData: the stored bytes have another digest.
        """
        content = await self._read(_artifact_key(tenant, sha256), sha256)
        if await _digest(content) != sha256:
            raise _corrupt(sha256)
        return content

    async def stream(
        self, tenant: str, sha256: str, *, start: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks, or those of a range; raises CorruptData after the last one if the digest differs."""
        key, digest = _artifact_key(tenant, sha256), hashlib.sha256()
        size = (await self.head(tenant, sha256)).size_bytes
        end = size if length is None else min(size, start + length)
        async for chunk in self._read_ahead(key, sha256, start, end):
            await asyncio.to_thread(digest.update, chunk)
            yield chunk
        if (start, end) == (0, size) and digest.hexdigest() != sha256:
            raise _corrupt(sha256)

    def path(self, tenant: str, sha256: str) -> Path | None:
        """The file of an artifact in a local folder, which may not exist; None in an object store."""
        return self._folder / _artifact_key(tenant, sha256) if self._folder else None

    async def presigned_url(self, tenant: str, sha256: str, expires_in: timedelta) -> str | None:
        """A URL to download the bytes from the store without credentials; None if the store does not support that."""
        if not isinstance(self._store, S3Store | GCSStore | AzureStore):
            return None
        with translate_errors():
            return await obstore.sign_async(self._store, "GET", _artifact_key(tenant, sha256), expires_in)

    async def written_before(self, moment: float) -> AsyncIterator[list[tuple[str, str]]]:
        """Pages of (tenant, sha256) of artifacts last written before a moment, in seconds since the epoch."""
        async for keys in self._keys_before("", moment):
            yield sorted({(found[1], found[2]) for key in keys if (found := _ARTIFACT_KEY.fullmatch(key))})

    async def discard(self, tenant: str, sha256: str, *, last_written_before: float) -> bool:
        """Deletes an artifact unless it has been written again; returns whether it did."""
        keys = (_artifact_key(tenant, sha256) + ".json", _artifact_key(tenant, sha256))
        if max([await self._written_at(key) for key in keys]) >= last_written_before:
            return False
        for key in keys:
            await self._remove(key)
        return True

    async def discard_staged(self, *, last_written_before: float) -> None:
        """Deletes the remains of uploads that never ended."""
        async for keys in self._keys_before(f"{STAGING}/", last_written_before):
            for key in keys:
                await self._remove(key)

    def key_values(self, namespace: str) -> KeyValueStore:
        """A key-value store in the same object store."""
        return KeyValueStore(self._store, namespace)

    def _sink(self, artifact: Artifact) -> Sink:
        return FileSink(self._folder) if self._folder else ObjectSink(self._store, self._attributes(artifact))

    def _attributes(self, artifact: Artifact) -> Any:
        """HTTP headers stored with an object; None in a folder."""
        if self._folder:
            return None
        headers = download_headers(artifact, inline=False)
        return {"Content-Type": headers["content-type"], "Content-Disposition": headers["content-disposition"]}

    async def _put_metadata(self, tenant: str, artifact: Artifact) -> None:
        with translate_errors():
            key = _artifact_key(tenant, artifact.sha256) + ".json"
            await obstore.put_async(self._store, key, _metadata(artifact))

    async def _read_ahead(self, key: str, sha256: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Reads one chunk ahead; each is a request of its own, so that a slow reader keeps none open."""
        ahead = asyncio.ensure_future(self._chunk(key, sha256, start, end))
        try:
            for at in range(start, end, READ_BYTES):
                chunk = await ahead
                ahead = asyncio.ensure_future(self._chunk(key, sha256, at + READ_BYTES, end))
                yield chunk
            await ahead
        finally:
            cancel_task(ahead)

    async def _chunk(self, key: str, sha256: str, at: int, end: int) -> bytes:
        if at >= end:
            return b""
        with translate_errors(partial(_missing, sha256)):
            return bytes(await obstore.get_range_async(self._store, key, start=at, end=min(at + READ_BYTES, end)))

    async def _keys_before(self, prefix: str, moment: float) -> AsyncIterator[list[str]]:
        """Pages of keys of objects last written before a moment."""
        with translate_errors():
            async for page in obstore.list(self._store, prefix=prefix, chunk_size=PAGE):
                yield [entry["path"] for entry in page if entry["last_modified"].timestamp() < moment]

    async def _written_at(self, key: str) -> float:
        """When an object was last written, in seconds since the epoch; 0 if it does not exist."""
        try:
            with translate_errors(FileNotFoundError):
                return (await obstore.head_async(self._store, key))["last_modified"].timestamp()
        except FileNotFoundError:
            return 0.0

    async def _remove(self, key: str) -> None:
        try:
            with translate_errors(FileNotFoundError):
                await obstore.delete_async(self._store, key)
        except FileNotFoundError:
            return

    async def _read(self, key: str, sha256: str) -> bytes:
        with translate_errors(partial(_missing, sha256)):
            if self._folder:
                return await asyncio.to_thread((self._folder / key).read_bytes)
            result = await obstore.get_async(self._store, key)
            return bytes(await result.bytes_async())


def _metadata(artifact: Artifact) -> bytes:
    """The content of an artifact's second object."""
    metadata = {"media_type": artifact.media_type, "size_bytes": artifact.size_bytes, "name": artifact.name}
    return json.dumps(metadata).encode()


async def _digest(content: bytes) -> str:
    if len(content) > THREAD_BYTES:
        return (await asyncio.to_thread(hashlib.sha256, content)).hexdigest()
    return hashlib.sha256(content).hexdigest()


def _missing(sha256: str) -> NotFound:
    return NotFound(
        f"there is no artifact {sha256}", reason="ARTIFACT", remedy="send the file again, or check the digest"
    )


def _corrupt(sha256: str) -> CorruptData:
    return CorruptData(f"the stored bytes of artifact {sha256} have changed", remedy="send the file again")
