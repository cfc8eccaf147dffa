"""HTTP to servers that are not ours: their answers have a limit, and nothing of one call stays for the next."""

import zlib
from collections.abc import AsyncIterator, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

from httpx2 import AsyncByteStream, AsyncClient, Limits, Response, SyncByteStream, Timeout

from services.common.errors import CorruptData, ModelFailed

CONNECT_SECONDS = 5.0
REPLY_BYTES = 64 * 1024 * 1024
REFUSAL_BYTES = 64 * 1024
"""What is read of an answer that is none; the rest is let be."""
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS


def client(*, seconds: float, reply_bytes: int = REPLY_BYTES) -> AsyncClient:
    """A client whose connections are shared by all calls; it follows no redirect, which would take the call elsewhere.

    Args:
        seconds: how long a server may be silent.
        reply_bytes: most of one reply, decompressed.
    """

    async def bound(response: Response) -> None:
        if response.has_redirect_location:
            raise _elsewhere(response)
        limit(response, reply_bytes)

    return AsyncClient(
        timeout=Timeout(seconds, connect=CONNECT_SECONDS),
        limits=Limits(max_connections=None),
        event_hooks={"response": [bound]},
        **habits(),
    )


def habits() -> dict[str, Any]:
    """What holds for every client, sync or async: no cookies, and nothing compressed if the server can help it."""
    return {"cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())), "headers": {"accept-encoding": "identity"}}


def limit(response: Response, reply_bytes: int = REPLY_BYTES) -> None:
    """Lets no more of a reply's body come than so many bytes; to be called before it is read.

    Its reader gets CorruptData if there is more, or if it is compressed in a way that cannot be measured.
    """
    if response.is_success:
        _check_length(response, reply_bytes)
    most = reply_bytes if response.is_success else REFUSAL_BYTES
    response.stream = _Measured(response, most, cut=not response.is_success)
    response.headers.pop("content-encoding", None)  # it is undone on the way


def _check_length(response: Response, reply_bytes: int) -> None:
    said = response.headers.get("content-length", "")
    if said.isdecimal() and int(said) > reply_bytes:
        raise _too_large(response, reply_bytes)


class _Measured(AsyncByteStream, SyncByteStream):
    """A body on its way."""

    def __init__(self, response: Response, most: int, *, cut: bool) -> None:
        self._response, self._inner, self._most, self._cut = response, response.stream, most, cut
        self._encoding = response.headers.get("content-encoding", "identity").strip().lower()
        self._inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:  # type: ignore[union-attr]  # that of an async client
            yield self._passed(chunk)
            if self._left < 0:
                return

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:  # type: ignore[union-attr]  # that of a sync client
            yield self._passed(chunk)
            if self._left < 0:
                return

    async def aclose(self) -> None:
        await self._inner.aclose()  # type: ignore[union-attr]  # that of an async client

    def close(self) -> None:
        self._inner.close()  # type: ignore[union-attr]  # that of a sync client

    def _passed(self, chunk: bytes) -> bytes:
        """What a chunk of the body is; less than all of it only where that is cut."""
        content = self._plain(chunk)
        self._left -= len(content)
        if self._left < 0 and not self._cut:
            raise _too_large(self._response, self._most)
        return content[: self._left] if self._left < 0 else content

    def _plain(self, chunk: bytes) -> bytes:
        if self._encoding in ("", "identity"):
            return chunk
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise _unreadable(self._response)
        try:
            return self._inflater.decompress(chunk, self._left + 1)  # so a bomb does not go off
        except zlib.error as error:
            raise _unreadable(self._response) from error


def _elsewhere(response: Response) -> ModelFailed:
    what = f"{response.request.url.host} wants to be asked at another address (HTTP status {response.status_code})"
    return ModelFailed(what, remedy="nothing is sent there; correct the address in the configuration")


def _too_large(response: Response, most: int) -> CorruptData:
    what = f"{response.request.url.host} answered with more than {most:,} bytes"
    return CorruptData(what, remedy="ask for less, such as a smaller picture, or take another model")


def _unreadable(response: Response) -> CorruptData:
    what = f"{response.request.url.host} compressed its answer in a way that was not asked for"
    return CorruptData(what, remedy="have it answer uncompressed, or take another model")
