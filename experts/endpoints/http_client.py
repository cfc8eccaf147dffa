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


def open_client(*, seconds: float, reply_bytes: int = REPLY_BYTES) -> AsyncClient:
    """Returns a client with connections shared by all calls; a redirect is an error.

    Args:
        seconds: read and write timeout.
        reply_bytes: maximum size of a reply after decompression.
    """

    async def check_response(response: Response) -> None:
        if response.has_redirect_location:
            raise _redirect_error(response)
        limit_body(response, reply_bytes)

    return AsyncClient(
        timeout=Timeout(seconds, connect=CONNECT_SECONDS),
        limits=Limits(max_connections=None),
        event_hooks={"response": [check_response]},
        **common_options(),
    )


def common_options() -> dict[str, Any]:
    """Returns options of all clients, sync or async: no cookies, and a request for uncompressed replies."""
    return {"cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())), "headers": {"accept-encoding": "identity"}}


def limit_body(response: Response, reply_bytes: int = REPLY_BYTES) -> None:
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
        raise _too_large_error(response, reply_bytes)


class _LimitedStream(AsyncByteStream, SyncByteStream):
    """A response body, decompressed and limited in size."""

    def __init__(self, response: Response, max_bytes: int, *, truncate: bool) -> None:
        self._response, self._inner, self._max_bytes = response, response.stream, max_bytes
        self._truncate = truncate
        self._encoding = response.headers.get("content-encoding", "identity").strip().lower()
        self._inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
        self._remaining_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:  # type: ignore[union-attr]  # the stream of an async client
            yield self._read_chunk(chunk)
            if self._remaining_bytes < 0:
                return

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:  # type: ignore[union-attr]  # the stream of a sync client
            yield self._read_chunk(chunk)
            if self._remaining_bytes < 0:
                return

    async def aclose(self) -> None:
        await self._inner.aclose()  # type: ignore[union-attr]  # the stream of an async client

    def close(self) -> None:
        self._inner.close()  # type: ignore[union-attr]  # the stream of a sync client

    def _read_chunk(self, chunk: bytes) -> bytes:
        """Returns the decompressed chunk, truncated at the limit if so configured."""
        content = self._decompress(chunk)
        self._remaining_bytes -= len(content)
        if self._remaining_bytes < 0 and not self._truncate:
            raise _too_large_error(self._response, self._max_bytes)
        return content[: self._remaining_bytes] if self._remaining_bytes < 0 else content

    def _decompress(self, chunk: bytes) -> bytes:
        if self._encoding in ("", "identity"):
            return chunk
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise _encoding_error(self._response)
        try:
            return self._inflater.decompress(chunk, self._remaining_bytes + 1)  # bounded, against decompression bombs
        except zlib.error as error:
            raise _encoding_error(self._response) from error


def _redirect_error(response: Response) -> ModelFailed:
    message = f"{response.request.url.host} redirects to another address (HTTP status {response.status_code})"
    return ModelFailed(message, remedy="redirects are not followed; correct the address in the configuration")


def _too_large_error(response: Response, max_bytes: int) -> CorruptData:
    message = f"{response.request.url.host} answered with more than {max_bytes:,} bytes"
    return CorruptData(message, remedy="request a smaller result, such as a smaller image, or use another model")


def _encoding_error(response: Response) -> CorruptData:
    message = f"{response.request.url.host} sent a reply with an unsupported compression"
    return CorruptData(message, remedy="configure it to answer uncompressed, or use another model")
