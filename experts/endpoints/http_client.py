"""HTTP client for servers outside the deployment: limits reply sizes, stores no cookies, follows no redirects."""

import zlib
from collections.abc import AsyncIterator, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

from httpx2 import AsyncByteStream, AsyncClient, Limits, Response, SyncByteStream, Timeout

from services.common.errors import CorruptData, ModelFailed

CONNECT_SECONDS = 5.0
REPLY_BYTES = 64 * 1024 * 1024
ERROR_BYTES = 64 * 1024
"""Maximum bytes read of an error response; the rest is ignored."""
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS


def client(*, seconds: float, reply_bytes: int = REPLY_BYTES) -> AsyncClient:
    """Returns a client with connections shared by all calls; a redirect is an error.

    Args:
        seconds: read and write timeout.
        reply_bytes: maximum size of a reply after decompression.
    """

    async def bound(response: Response) -> None:
        if response.has_redirect_location:
            raise _redirected(response)
        limit(response, reply_bytes)

    return AsyncClient(
        timeout=Timeout(seconds, connect=CONNECT_SECONDS),
        limits=Limits(max_connections=None),
        event_hooks={"response": [bound]},
        **common_options(),
    )


def common_options() -> dict[str, Any]:
    """Returns options of all clients, sync or async: no cookies, and a request for uncompressed replies."""
    return {"cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())), "headers": {"accept-encoding": "identity"}}


def limit(response: Response, reply_bytes: int = REPLY_BYTES) -> None:
    """Limits the body of a reply; must be called before it is read.

    Reading raises CorruptData if the body is longer, or compressed with an unsupported encoding.
    """
    if response.is_success:
        _check_length(response, reply_bytes)
    max_bytes = reply_bytes if response.is_success else ERROR_BYTES
    response.stream = _LimitedStream(response, max_bytes, truncate=not response.is_success)
    response.headers.pop("content-encoding", None)  # the stream decompresses


def _check_length(response: Response, reply_bytes: int) -> None:
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > reply_bytes:
        raise _too_large(response, reply_bytes)


class _LimitedStream(AsyncByteStream, SyncByteStream):
    """A response body, decompressed and limited in size."""

    def __init__(self, response: Response, max_bytes: int, *, truncate: bool) -> None:
        self._response, self._inner, self._max_bytes = response, response.stream, max_bytes
        self._truncate = truncate
        self._encoding = response.headers.get("content-encoding", "identity").strip().lower()
        self._inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._left = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:  # type: ignore[union-attr]  # that of an async client
            yield self._limited(chunk)
            if self._left < 0:
                return

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:  # type: ignore[union-attr]  # that of a sync client
            yield self._limited(chunk)
            if self._left < 0:
                return

    async def aclose(self) -> None:
        await self._inner.aclose()  # type: ignore[union-attr]  # that of an async client

    def close(self) -> None:
        self._inner.close()  # type: ignore[union-attr]  # that of a sync client

    def _limited(self, chunk: bytes) -> bytes:
        """Returns the decompressed chunk, truncated at the limit if so configured."""
        content = self._decompressed(chunk)
        self._left -= len(content)
        if self._left < 0 and not self._truncate:
            raise _too_large(self._response, self._max_bytes)
        return content[: self._left] if self._left < 0 else content

    def _decompressed(self, chunk: bytes) -> bytes:
        if self._encoding in ("", "identity"):
            return chunk
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise _unreadable(self._response)
        try:
            return self._inflater.decompress(chunk, self._left + 1)  # bounded, against decompression bombs
        except zlib.error as error:
            raise _unreadable(self._response) from error


def _redirected(response: Response) -> ModelFailed:
    what = f"{response.request.url.host} redirects to another address (HTTP status {response.status_code})"
    return ModelFailed(what, remedy="redirects are not followed; correct the address in the configuration")


def _too_large(response: Response, max_bytes: int) -> CorruptData:
    what = f"{response.request.url.host} answered with more than {max_bytes:,} bytes"
    return CorruptData(what, remedy="request a smaller result, such as a smaller image, or use another model")


def _unreadable(response: Response) -> CorruptData:
    what = f"{response.request.url.host} sent a reply with an unsupported compression"
    return CorruptData(what, remedy="configure it to answer uncompressed, or use another model")
