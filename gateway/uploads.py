"""Streams uploaded files to the artifact store in constant memory, and checks their type on the way."""

import codecs
from collections.abc import AsyncIterable, AsyncIterator, Callable

from gateway.content_type_check import check_content_type
from gateway.media_sniffing import HEAD_BYTES
from gateway.media_types import is_text, media_type
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.artifacts.downloads import clean_name
from services.common.errors import InvalidRequest

MAX_FILES = 256
"""Maximum number of files in one request."""


def files_too_large_error(limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"the files are larger than the limit of {limit / 1e6:g} MB",
        reason="TOO_LARGE",
        remedy="send smaller files, or ask the operator to raise the limit",
    )


def too_many_files_error() -> InvalidRequest:
    return InvalidRequest(f"the request has more than {MAX_FILES} files", reason="TOO_LARGE", remedy="send fewer files")


class Allowance:
    """Number and total size of files that a request may still send.

    Args:
        limit: maximum total bytes.
        parent: a further allowance that the files count against.
    """

    def __init__(self, limit: int, parent: "Allowance | None" = None) -> None:
        self.limit = limit
        self._parent = parent
        self._remaining_bytes = limit
        self._files = 0

    def add_file(self) -> None:
        """Counts a file; raises InvalidRequest TOO_LARGE if there are too many."""
        self._files += 1
        if self._files > MAX_FILES:
            raise too_many_files_error()

    def add_bytes(self, size: int) -> None:
        """Counts bytes; raises InvalidRequest TOO_LARGE if there are too many."""
        self._remaining_bytes -= size
        if self._remaining_bytes < 0:
            raise files_too_large_error(self.limit)
        if self._parent:
            self._parent.add_bytes(size)


async def store_file(
    store: ArtifactStore,
    tenant: str,
    name: str,
    chunks: AsyncIterable[bytes],
    allowance: Allowance,
    *,
    stated_type: str = "",
) -> Artifact:
    """Stores a file whose content matches its name and stated media type.

    Raises:
        InvalidRequest: EMPTY_FILE, TOO_LARGE, FILE_TYPE or NOT_UTF8.
    """
    allowance.add_file()
    name = clean_name(name)
    rest = aiter(_counted(chunks, allowance))
    head, ended = await _head(rest)
    if not head:
        raise InvalidRequest(f"{name} is empty", reason="EMPTY_FILE", remedy="send a file with content")
    kind = media_type(name, head[:HEAD_BYTES], whole=ended and len(head) <= HEAD_BYTES)
    check_content_type(name, stated_type, kind)
    check = _utf8_check(name) if is_text(kind) else _accept

    async def content() -> AsyncIterator[bytes]:
        check(head, False)
        yield head
        async for chunk in rest:
            check(chunk, False)
            yield chunk
        check(b"", True)

    return await store.put_stream(tenant, content(), media_type=kind, name=name, limit=allowance.limit)


async def _counted(chunks: AsyncIterable[bytes], allowance: Allowance) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        allowance.add_bytes(len(chunk))
        yield chunk


async def _head(chunks: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            return head, False
    return head, True


def _accept(_chunk: bytes, _last: bool) -> None:
    pass


def _utf8_check(name: str) -> Callable[[bytes, bool], None]:
    decoder = codecs.getincrementaldecoder("utf-8")()

    def check(chunk: bytes, last: bool) -> None:
        try:
            whole = "\0" not in decoder.decode(chunk, last)
        except UnicodeDecodeError:
            whole = False
        if not whole:
            remedy = "save it as UTF-8 and send it again"
            raise InvalidRequest(
                f"cannot accept {name}: its name means text, but its content is not UTF-8",
                reason="NOT_UTF8",
                remedy=remedy,
            )

    return check
