"""Fetching a file from a URL given by a user, within limits and behind the SSRF guard."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import httpx

from services.common.errors import InvalidRequest
from services.common.http_fetch.ssrf_guard import (
    CONNECT_SECONDS,
    GuardedTransport,
    SsrfGuard,
    address_denied,
    invalid_url,
)

URL_CHARACTERS = 8_000

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")
_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "hugginggpt"}


@dataclass(frozen=True)
class FetchLimits:
    """Limits for one URL."""

    size_bytes: int
    redirects: int = 5
    answer_seconds: float = 15.0
    """Until the response starts, and between its chunks."""
    total_seconds: float = 120.0
    types: tuple[str, ...] = ("image/", "audio/", "video/", "text/", "application/")
    """Prefixes of accepted media types."""


@dataclass(frozen=True)
class FetchedFile:
    """The response at the end of all redirects; its content can be read once."""

    media_type: str
    """Content-Type without parameters, in lower case; empty if there is none."""
    name: str
    """Last segment of the URL's path; may be empty."""
    content: AsyncIterator[bytes]


@asynccontextmanager
async def fetch(url: str, guard: SsrfGuard, limits: FetchLimits) -> AsyncIterator[FetchedFile]:
    """Requests a URL and follows redirects, each of which the guard checks like the first URL.

    Compressed responses are rejected, because they can expand without bound. Reading the content can raise the
    same errors.

    Raises:
        InvalidRequest: URL, it is malformed or not HTTP; FETCH_FAILED, no successful response; TOO_LARGE; FILE_TYPE.
        PermissionDenied: URL_ADDRESS, the host is not public and not allowed; POLICY.
    """
    client = httpx.AsyncClient(transport=GuardedTransport(guard), timeout=limits.answer_seconds, trust_env=False)
    try:
        async with (
            asyncio.timeout(limits.total_seconds),
            client,
            _follow_redirects(client, parse_url(url), limits) as (final_url, response),
        ):
            media_type = _check(response, final_url, limits)
            async with aclosing(_limited(response, limits)) as chunks:
                yield FetchedFile(media_type, unquote(final_url.path.rpartition("/")[2]), chunks)
    except TimeoutError as error:
        raise _failed("took too long") from error


@asynccontextmanager
async def _follow_redirects(
    client: httpx.AsyncClient, url: httpx.URL, limits: FetchLimits
) -> AsyncIterator[tuple[httpx.URL, httpx.Response]]:
    """The final URL and its response."""
    for _ in range(limits.redirects + 1):
        response = await _send(client, url, limits)
        try:
            if response.status_code not in _REDIRECTS:
                yield url, response
                return
            url = _redirect_target(url, response)
        finally:
            await response.aclose()
    raise _failed(f"redirects more than {limits.redirects} times")


async def _send(client: httpx.AsyncClient, url: httpx.URL, limits: FetchLimits) -> httpx.Response:
    client.cookies.clear()  # no server may track requests across redirects
    request = client.build_request("GET", url, headers=_HEADERS)
    try:
        async with asyncio.timeout(CONNECT_SECONDS + limits.answer_seconds):
            return await client.send(request, stream=True)
    except httpx.ConnectError as error:
        raise address_denied(url.host) from error
    except (httpx.TransportError, TimeoutError) as error:
        raise _failed("does not answer") from error


def parse_url(url: str) -> httpx.URL:
    """Parses a URL without normalizing it.

    Raises:
        InvalidRequest: URL, it is malformed.
    """
    if len(url) > URL_CHARACTERS or _FORBIDDEN_CHARACTERS.search(url):
        raise invalid_url("is too long, or contains characters that a URL cannot contain")
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise invalid_url("is malformed") from error


def _redirect_target(url: httpx.URL, response: httpx.Response) -> httpx.URL:
    target = url.join(parse_url(response.headers.get("location", "")))
    if url.scheme == "https" and target.scheme == "http":
        raise _failed("redirects from https to http")
    return target


def _check(response: httpx.Response, url: httpx.URL, limits: FetchLimits) -> str:
    """Checks a response's headers; returns its media type."""
    if response.status_code != httpx.codes.OK:
        raise _failed(f"answers {response.status_code}")
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise _failed("has a compressed response, although none was requested")
    stated = response.headers.get("content-length", "")
    if stated.isascii() and stated.isdecimal() and int(stated[:20]) > limits.size_bytes:
        raise _too_large(limits)
    media_type: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and not media_type.startswith(limits.types):
        raise InvalidRequest(
            f"{url.host} sends a file of an unsupported type",
            reason="FILE_TYPE",
            remedy=f"give the URL of a file whose media type starts with {', '.join(limits.types)}",
        )
    return media_type


async def _limited(response: httpx.Response, limits: FetchLimits) -> AsyncGenerator[bytes]:
    size = 0
    try:
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > limits.size_bytes:
                raise _too_large(limits)
            yield chunk
    except httpx.TransportError as error:
        raise _failed("has an incomplete response") from error


def _failed(problem: str) -> InvalidRequest:
    remedy = "check that it opens in a browser without signing in, or upload the file"
    return InvalidRequest(f"the URL {problem}", reason="FETCH_FAILED", remedy=remedy)


def _too_large(limits: FetchLimits) -> InvalidRequest:
    return InvalidRequest(
        f"the file at the URL is larger than the limit of {limits.size_bytes / 1e6:g} MB",
        reason="TOO_LARGE",
        remedy="give a smaller file, or ask the operator to raise the limit",
    )
