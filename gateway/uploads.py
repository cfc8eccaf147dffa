"""Files from outside: looked at while they come in, kept in the store in constant memory."""

import codecs
from collections.abc import AsyncIterable, AsyncIterator, Callable

from gateway.content_type_check import check_claim
from gateway.media_sniffing import HEAD_BYTES
from gateway.media_types import is_text, media_type
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.artifacts.naming import clean_name
from services.common.errors import InvalidRequest

MOST_FILES = 256
"""With one request: each is written, or asked for elsewhere, by itself."""


def files_too_large(limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"the files are larger than the limit of {limit / 1e6:g} MB",
        reason="TOO_LARGE",
        remedy="send less at once, or ask the operator to raise the limit",
    )


def too_many_files() -> InvalidRequest:
    return InvalidRequest(
        f"the request has more than {MOST_FILES} files", reason="TOO_LARGE", remedy="send fewer at once"
    )


class Allowance:
    """Files that may come with one request: how many, and how large all together.

    Args:
        limit: most bytes.
        within: what they count against, too.
    """

    def __init__(self, limit: int, within: "Allowance | None" = None) -> None:
        self.limit = limit
        self._within = within
        self._left = limit
        self._files = 0

    def begin(self) -> None:
        """Raises InvalidRequest TOO_LARGE once more files have come than are allowed."""
        self._files += 1
        if self._files > MOST_FILES:
            raise too_many_files()

    def spend(self, size: int) -> None:
        """Raises InvalidRequest TOO_LARGE once more has come than is allowed."""
        self._left -= size
        if self._left < 0:
            raise files_too_large(self.limit)
        if self._within:
            self._within.spend(size)


async def keep(
    store: ArtifactStore,
    tenant: str,
    name: str,
    chunks: AsyncIterable[bytes],
    allowance: Allowance,
    *,
    claimed: str = "",
) -> Artifact:
    """Keeps a file, if it is what its name and the claimed media type say.

    Raises:
        InvalidRequest: EMPTY_FILE, TOO_LARGE, FILE_TYPE or NOT_UTF8.
    """
    allowance.begin()
    name = clean_name(name)
    rest = aiter(_paid(chunks, allowance))
    head, ended = await _head(rest)
    if not head:
        raise InvalidRequest(f"{name} is empty", reason="EMPTY_FILE", remedy="send a file with something in it")
    kind = media_type(name, head[:HEAD_BYTES], whole=ended and len(head) <= HEAD_BYTES)
    check_claim(name, claimed, kind)
    check = _utf8(name) if is_text(kind) else _anything

    async def content() -> AsyncIterator[bytes]:
        check(head, False)
        yield head
        async for chunk in rest:
            check(chunk, False)
            yield chunk
        check(b"", True)

    return await store.put_stream(tenant, content(), media_type=kind, name=name, limit=allowance.limit)


async def _paid(chunks: AsyncIterable[bytes], allowance: Allowance) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        allowance.spend(len(chunk))
        yield chunk


async def _head(chunks: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            return head, False
    return head, True


def _anything(_chunk: bytes, _last: bool) -> None:
    pass


def _utf8(name: str) -> Callable[[bytes, bool], None]:
    decoder = codecs.getincrementaldecoder("utf-8")()

    def check(chunk: bytes, last: bool) -> None:
        try:
            whole = "\0" not in decoder.decode(chunk, last)
        except UnicodeDecodeError:
            whole = False
        if not whole:
            remedy = "save it as UTF-8 and send it again"
            raise InvalidRequest(f"{name} is named as text but is not UTF-8", reason="NOT_UTF8", remedy=remedy)

    return check
