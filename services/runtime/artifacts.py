"""Artifacts: bytes kept once per tenant under their digest, in a folder or an object store.

An object {tenant}/{sha256} has a sidecar {tenant}/{sha256}.json with media type and name, since a local folder keeps no
attributes. Streams go to _staging/ and are renamed once their digest is known.
"""

import asyncio
import hashlib
import json
import os
import re
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from protos.hugginggpt.v1.types_pb2 import Artifact
from services.runtime.errors import CorruptData, InvalidRequest, NotFound, Unavailable
from services.runtime.notes import Notes

INLINE_BYTES = 256 * 1024
"""Longest value that travels, and is kept, in messages; a longer one is an artifact."""

PART_BYTES = 5 * 1024 * 1024
PARTS_AT_ONCE = 2
THREAD_BYTES = 1024 * 1024
PAGE = 500
"""Objects listed at once."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ARTIFACT = re.compile(rf"({_TENANT.pattern})/({_DIGEST.pattern})(?:\.json)?")


class ArtifactStore:
    """The content-addressed store. Every method raises Unavailable if the store does not answer."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    @classmethod
    def open(cls, url: str) -> "ArtifactStore":
        """Opens file:///folder (made if absent) or a bucket's URL.

        Raises:
            Unavailable: the folder cannot be made or written.
            InvalidRequest: the URL is of no known kind.
        """
        if url.startswith("file://"):
            folder = Path(unquote(urlsplit(url).path))
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                remedy = "give ARTIFACTS_URL a folder this user may write"
                raise Unavailable(f"cannot use {folder} for artifacts: {error.strerror}", remedy=remedy) from error
            return cls(LocalStore(folder), folder)
        try:
            return cls(from_url(url))
        except (BaseError, ValueError) as error:
            remedy = "give ARTIFACTS_URL as file:///folder or s3://bucket/prefix"
            raise InvalidRequest(f"cannot open the artifact store: {error}", remedy=remedy) from error

    async def put(self, tenant: str, content: bytes, *, media_type: str, name: str) -> Artifact:
        """Keeps bytes; writing the same again is harmless."""
        artifact = Artifact(sha256=await _digest(content), media_type=media_type, size_bytes=len(content), name=name)
        await self._write(_key(tenant, artifact.sha256), content)
        await self._describe(tenant, artifact)
        return artifact

    async def put_stream(
        self, tenant: str, chunks: AsyncIterable[bytes], *, media_type: str, name: str, limit: int
    ) -> Artifact:
        """Keeps a stream of bytes in constant memory.

        Args:
            tenant: whose it is.
            chunks: the bytes.
            media_type: IANA media type.
            name: what a person would call it.
            limit: most bytes taken.

        Raises:
            InvalidRequest: TOO_LARGE if there are more bytes than the limit.
        """
        digest, size = hashlib.sha256(), 0

        async def counted() -> AsyncIterator[bytes]:
            nonlocal size
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise InvalidRequest(
                        f"{name or 'the file'} is larger than the limit of {limit} bytes",
                        reason="TOO_LARGE",
                        remedy="send a smaller file, or ask the operator to raise the limit",
                    )
                digest.update(chunk)
                yield chunk

        staged = f"_staging/{uuid4().hex}"
        try:
            await obstore.put_async(
                self._store, staged, counted(), chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )
            artifact = Artifact(sha256=digest.hexdigest(), media_type=media_type, size_bytes=size, name=name)
            await obstore.rename_async(self._store, staged, _key(tenant, artifact.sha256))
        except BaseError as error:
            raise _unavailable(error) from error
        await self._describe(tenant, artifact)
        return artifact

    async def head(self, tenant: str, sha256: str) -> Artifact:
        """What is known of an artifact.

        Raises:
            NotFound: ARTIFACT, the tenant has none of that digest.
        """
        content = await self._read(_key(tenant, sha256) + ".json", sha256)
        known = json.loads(content)
        return Artifact(
            sha256=sha256, media_type=known["media_type"], size_bytes=known["size_bytes"], name=known["name"]
        )

    async def holds(self, tenant: str, sha256: str) -> bool:
        """Whether the tenant has an artifact of that digest, its bytes and what is known of it."""
        key = _key(tenant, sha256)
        return all([await self._written(each) for each in (key, key + ".json")])

    async def get(self, tenant: str, sha256: str) -> bytes:
        """The bytes, checked against their digest.

        Raises:
            NotFound: ARTIFACT, the tenant has none of that digest.
            CorruptData: the stored bytes have another digest.
        """
        content = await self._read(_key(tenant, sha256), sha256)
        if await _digest(content) != sha256:
            raise _corrupt(sha256)
        return content

    async def stream(self, tenant: str, sha256: str) -> AsyncIterator[bytes]:
        """The bytes in pieces; ends with CorruptData if their digest turns out to be another one."""
        key = _key(tenant, sha256)
        digest = hashlib.sha256()
        try:
            result = await obstore.get_async(self._store, key)
            async for chunk in result.stream(min_chunk_size=256 * 1024):
                piece = bytes(chunk)
                digest.update(piece)
                yield piece
        except (FileNotFoundError, obstore.exceptions.NotFoundError) as error:
            raise _missing(sha256) from error
        except BaseError as error:
            raise _unavailable(error) from error
        if digest.hexdigest() != sha256:
            raise _corrupt(sha256)

    def path(self, tenant: str, sha256: str) -> Path | None:
        """The file of an artifact where the store is a local folder, else None. The file may not exist."""
        return self._folder / _key(tenant, sha256) if self._folder else None

    async def last_written_before(self, moment: float) -> AsyncIterator[list[tuple[str, str]]]:
        """(tenant, sha256) of what was last written before then, in seconds since the epoch; some at a time."""
        async for keys in self._old("", moment):
            yield sorted({(found[1], found[2]) for key in keys if (found := _ARTIFACT.fullmatch(key))})

    async def discard(self, tenant: str, sha256: str, *, last_written_before: float) -> bool:
        """Removes an artifact, unless it was written again; tells whether it did."""
        keys = (_key(tenant, sha256) + ".json", _key(tenant, sha256))
        if max([await self._written(key) for key in keys]) >= last_written_before:
            return False
        for key in keys:
            await self._remove(key)
        return True

    async def discard_unfinished(self, *, last_written_before: float) -> None:
        """Removes what is left of streams that never came to their end."""
        async for keys in self._old("_staging/", last_written_before):
            for key in keys:
                await self._remove(key)

    def notes(self, kind: str) -> Notes:
        """What a service keeps for itself in the same store."""
        return Notes(self._store, kind)

    async def _describe(self, tenant: str, artifact: Artifact) -> None:
        known = {"media_type": artifact.media_type, "size_bytes": artifact.size_bytes, "name": artifact.name}
        await self._write(_key(tenant, artifact.sha256) + ".json", json.dumps(known).encode())

    async def _write(self, key: str, content: bytes) -> None:
        try:
            await obstore.put_async(self._store, key, content)
        except BaseError as error:
            raise _unavailable(error) from error

    async def _old(self, prefix: str, moment: float) -> AsyncIterator[list[str]]:
        """Keys of objects last written before then, some at a time."""
        try:
            async for page in obstore.list(self._store, prefix=prefix, chunk_size=PAGE):
                yield [entry["path"] for entry in page if entry["last_modified"].timestamp() < moment]
        except BaseError as error:
            raise _unavailable(error) from error

    async def _written(self, key: str) -> float:
        """When an object was last written; 0 if it is not there."""
        try:
            return (await obstore.head_async(self._store, key))["last_modified"].timestamp()
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return 0.0
        except BaseError as error:
            raise _unavailable(error) from error

    async def _remove(self, key: str) -> None:
        try:
            await obstore.delete_async(self._store, key)
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return
        except BaseError as error:
            raise _unavailable(error) from error

    async def _read(self, key: str, sha256: str) -> bytes:
        try:
            result = await obstore.get_async(self._store, key)
            return bytes(await result.bytes_async())
        except (FileNotFoundError, obstore.exceptions.NotFoundError) as error:
            raise _missing(sha256) from error
        except BaseError as error:
            raise _unavailable(error) from error


async def _digest(content: bytes) -> str:
    """Of long content on another thread: a megabyte takes a millisecond."""
    if len(content) > THREAD_BYTES:
        return (await asyncio.to_thread(hashlib.sha256, content)).hexdigest()
    return hashlib.sha256(content).hexdigest()


def _key(tenant: str, sha256: str) -> str:
    if not _DIGEST.fullmatch(sha256):
        raise InvalidRequest(
            "an artifact is named by 64 lower-case hexadecimal digits", remedy="use the sha256 of an artifact"
        )
    if not _TENANT.fullmatch(tenant):
        raise InvalidRequest("a tenant is named by lower-case letters, digits and hyphens", remedy="check the tenant")
    return f"{tenant}/{sha256}"


def _missing(sha256: str) -> NotFound:
    return NotFound(
        f"there is no artifact {sha256}", reason="ARTIFACT", remedy="send the file again, or check the digest"
    )


def _corrupt(sha256: str) -> CorruptData:
    return CorruptData(f"the stored bytes of artifact {sha256} have changed", remedy="send the file again")


def _unavailable(error: BaseError) -> Unavailable:
    found = _OS_ERROR.search(str(error))  # the rest of its text names places
    return Unavailable(
        f"the artifact store does not answer: {os.strerror(int(found[1])) if found else type(error).__name__}",
        remedy="check ARTIFACTS_URL, its permissions and the free space",
    )
