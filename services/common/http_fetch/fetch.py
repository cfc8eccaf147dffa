"""Reading what a URL gives, within limits."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import httpx

from services.common.errors import InvalidRequest
from services.common.http_fetch.ssrf_guard import CONNECT_SECONDS, Guard, GuardedTransport, closed, refused_url

URL_CHARACTERS = 8_000

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_UNFIT = re.compile(r"[\x00-\x20\x7f\\]")
_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "hugginggpt"}


@dataclass(frozen=True)
class Limits:
    """The most that one URL may take."""

    size_bytes: int
    redirects: int = 5
    answer_seconds: float = 15.0
    """Until an answer begins, and between its pieces."""
    total_seconds: float = 120.0
    types: tuple[str, ...] = ("image/", "audio/", "video/", "text/", "application/")
    """What its media type may begin with."""


@dataclass(frozen=True)
class Answer:
    """What a URL gives: its claims, and its bytes once, as they come."""

    media_type: str
    """As the server says, lower case, without parameters; empty if it does not say."""
    name: str
    """The last part of the path; may be empty."""
    content: AsyncIterator[bytes]


@asynccontextmanager
async def answer(url: str, guard: Guard, limits: Limits) -> AsyncIterator[Answer]:
    """Asks a URL; whatever it leads to is checked as it was.

    Compressed answers are not asked for, and refused: they may grow without bound. The content ends with the same
    errors.

    Raises:
        InvalidRequest: URL, it is not one to ask; FETCH_FAILED, there is no good answer; TOO_LARGE; FILE_TYPE.
        PermissionDenied: URL_ADDRESS, its host may not be reached.
    """
    client = httpx.AsyncClient(transport=GuardedTransport(guard), timeout=limits.answer_seconds, trust_env=False)
    try:
        async with (
            asyncio.timeout(limits.total_seconds),
            client,
            _followed(client, parsed(url), limits) as (place, response),
        ):
            kind = _checked(response, place, limits)
            async with aclosing(_pieces(response, limits)) as pieces:
                yield Answer(kind, unquote(place.path.rpartition("/")[2]), pieces)
    except TimeoutError as error:
        raise _failed("took too long") from error


@asynccontextmanager
async def _followed(
    client: httpx.AsyncClient, url: httpx.URL, limits: Limits
) -> AsyncIterator[tuple[httpx.URL, httpx.Response]]:
    """The answer at the end of the redirects, and where that is."""
    for _ in range(limits.redirects + 1):
        response = await _sent(client, url, limits)
        try:
            if response.status_code not in _REDIRECTS:
                yield url, response
                return
            url = _next(url, response)
        finally:
            await response.aclose()
    raise _failed(f"leads on more than {limits.redirects} times")


async def _sent(client: httpx.AsyncClient, url: httpx.URL, limits: Limits) -> httpx.Response:
    client.cookies.clear()  # a server that leads on may not mark who comes
    request = client.build_request("GET", url, headers=_HEADERS)
    try:
        async with asyncio.timeout(CONNECT_SECONDS + limits.answer_seconds):
            return await client.send(request, stream=True)
    except httpx.ConnectError as error:
        raise closed(url.host) from error
    except (httpx.TransportError, TimeoutError) as error:
        raise _failed("does not answer") from error


def parsed(url: str) -> httpx.URL:
    """A URL as it was written.

    Raises:
        InvalidRequest: URL, it is none.
    """
    if len(url) > URL_CHARACTERS or _UNFIT.search(url):
        raise refused_url("has characters that no URL has, or too many")
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise refused_url("is none") from error


def _next(url: httpx.URL, response: httpx.Response) -> httpx.URL:
    to = url.join(parsed(response.headers.get("location", "")))
    if url.scheme == "https" and to.scheme == "http":
        raise _failed("leads from https to http")
    return to


def _checked(response: httpx.Response, url: httpx.URL, limits: Limits) -> str:
    """The media type of an answer that may be read on."""
    if response.status_code != httpx.codes.OK:
        raise _failed(f"answers {response.status_code}")
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise _failed("is sent compressed, which was not asked for")
    stated = response.headers.get("content-length", "")
    if stated.isascii() and stated.isdecimal() and int(stated[:20]) > limits.size_bytes:
        raise _too_large(limits)
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and not kind.startswith(limits.types):
        raise InvalidRequest(
            f"what {url.host} sends is of a type not taken here",
            reason="FILE_TYPE",
            remedy=f"give the URL of something whose type begins with {', '.join(limits.types)}",
        )
    return kind


async def _pieces(response: httpx.Response, limits: Limits) -> AsyncGenerator[bytes]:
    size = 0
    try:
        async for piece in response.aiter_raw():
            size += len(piece)
            if size > limits.size_bytes:
                raise _too_large(limits)
            yield piece
    except httpx.TransportError as error:
        raise _failed("breaks off") from error


def _failed(what: str) -> InvalidRequest:
    remedy = "look whether it opens in a browser without signing in, or upload the file"
    return InvalidRequest(f"the URL {what}", reason="FETCH_FAILED", remedy=remedy)


def _too_large(limits: Limits) -> InvalidRequest:
    return InvalidRequest(
        f"what the URL sends is larger than the limit of {limits.size_bytes / 1e6:g} MB",
        reason="TOO_LARGE",
        remedy="give a smaller file, or ask the operator to raise the limit",
    )
