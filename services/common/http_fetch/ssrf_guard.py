"""Who may be reached.

A name is resolved once, all its addresses are checked, and the connection goes to one of them, while Host header and
certificate stay the name's. No proxy of the environment is asked, since it would resolve the name again. What is told
of a name that is unknown, of one that is private and of one that cannot be reached is the same.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial

import httpcore
import httpx

from services.common import call_context
from services.common.errors import InvalidRequest, PermissionDenied
from services.common.http_fetch.addresses import Address, AllowList, is_public

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

PORTS: dict[str, int] = {"http": 80, "https": 443}
"""The schemes there are, and the ports that need no allowance."""

CONNECT_SECONDS = 5.0
"""For finding an address and reaching it."""

LOOKUPS = 16
"""Names asked for at one time, in threads of their own: a name server that does not answer holds up names only."""

_LOOKING_UP = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="names")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?")


async def resolved(host: str, port: int) -> Sequence[Address]:
    """All addresses the system knows for a name; none if it knows no such name."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_LOOKING_UP, look_up)
    except (OSError, UnicodeError):
        return ()
    return [ipaddress.ip_address(sockaddr[0]) for *_, sockaddr in found]


@cache
def system_tls() -> ssl.SSLContext:
    """Trusts the usual authorities, or those of SSL_CERT_FILE."""
    return httpx.create_ssl_context()


def refused_url(what: str) -> InvalidRequest:
    return InvalidRequest(f"the URL {what}", reason="URL", remedy="give one such as https://example.org/picture.png")


class Unresolved(PermissionDenied):
    """The name has no address, or none yet; a client is answered as for an address that is closed to it."""


def closed(host: str, kind: type[PermissionDenied] = PermissionDenied) -> PermissionDenied:
    return kind(
        f"{host[:100]} cannot be reached from here",
        reason="URL_ADDRESS",
        remedy="use a public https address, upload the file, or ask the operator to allow the host",
    )


def outside(host: str) -> PermissionDenied:
    return PermissionDenied(
        f"the data of this request may not leave the house, and {host[:100]} is outside",
        reason="POLICY",
        remedy="upload the file, allow the data policy open, or ask the operator to name the host as one of the house",
    )


@dataclass(frozen=True)
class Guard:
    """Decides by URL, then by address."""

    allowed: AllowList = field(default_factory=AllowList)
    resolve: Resolve = resolved
    tls: Callable[[], ssl.SSLContext] = system_tls
    keeps_in: bool = False
    """Only what the operator has named may be asked; no other name is even looked up."""

    def as_policy_has_it(self) -> "Guard":
        """The guard of what is done for the current caller: under the data policy local it keeps in."""
        return self if call_context.may_leave_the_house() else replace(self, keeps_in=True)

    def check(self, url: httpx.URL) -> None:
        """Refuses what is no plain address of a host.

        Raises:
            InvalidRequest: URL, it is not one to ask.
            PermissionDenied: URL_ADDRESS, its port is closed; POLICY, it would leave the house.
        """
        if url.scheme not in PORTS:
            raise refused_url("is neither https nor http")
        if url.userinfo:
            raise refused_url("has a user name or password in it")
        host = url.raw_host.decode("ascii").lower()
        if not (_literal(host) or _HOST.fullmatch(host)):
            raise refused_url("has no plain host")
        if _NUMBER.fullmatch(host.rpartition(".")[2]) and not _literal(host):
            raise refused_url("writes an address in an unusual way")
        port = PORTS[url.scheme] if url.port is None else url.port
        if self.keeps_in and not self._opened(host, port):
            raise outside(host)
        if port not in PORTS.values() and not self._opened(host, port):
            raise closed(host)

    def names(self, url: httpx.URL) -> bool:
        """Whether the operator has named the URL's host, at its port."""
        return self._opened(url.raw_host.decode("ascii").lower(), url.port or PORTS.get(url.scheme, 0))

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of a host, each of which may be reached.

        Raises:
            Unresolved: URL_ADDRESS, it has none.
            PermissionDenied: URL_ADDRESS, it has one that may not be reached.
        """
        literal = _literal(host)
        found = [literal] if literal else await self.resolve(host, port)
        named = self.allowed.names(host, port)
        if not found:
            raise closed(host, Unresolved)
        if not all(named or is_public(each) or self.allowed.holds(each) for each in found):
            raise closed(host)
        return found

    async def check_address(self, url: httpx.URL) -> None:
        """Refuses a URL of an address that may not be reached, ahead of any connection.

        A name passes: looking it up would send it outside, and its addresses may change. They are checked when it is
        connected to.

        Raises:
            PermissionDenied: URL_ADDRESS, its address may not be reached.
        """
        host = url.raw_host.decode("ascii").lower()
        if _literal(host) and not self.names(url):
            await self.addresses(host, url.port or PORTS[url.scheme])

    def _opened(self, host: str, port: int) -> bool:
        literal = _literal(host)
        return self.allowed.names(host, port) or (literal is not None and self.allowed.holds(literal))


class GuardedTransport(httpx.AsyncBaseTransport):
    """For any httpx client, which must itself be told trust_env=False; each redirect comes here again."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._pool = httpcore.AsyncConnectionPool(guard.tls(), network_backend=_CheckedConnections(guard))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._guard.check(request.url)
        asked = httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx(request):
            reply = await self._pool.handle_async_request(asked)
        return httpx.Response(
            reply.status, headers=reply.headers, stream=_Stream(reply, request), extensions=reply.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _CheckedConnections(httpcore.AsyncNetworkBackend):
    """What is resolved is what is checked is what is connected to."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectTimeout()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                for address in await self._guard.addresses(host, port):
                    try:
                        return await self._network.connect_tcp(
                            str(address), port, timeout, local_address, socket_options
                        )
                    except httpcore.ConnectError as error:
                        failure = error
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        raise failure


class _Stream(httpx.AsyncByteStream):
    def __init__(self, reply: httpcore.Response, request: httpx.Request) -> None:
        self._reply = reply
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._reply.stream, AsyncIterable)  # noqa: S101  # an async pool's are
        with _as_httpx(self._request):
            async for piece in self._reply.stream:
                yield piece

    async def aclose(self) -> None:
        await self._reply.aclose()


@contextmanager
def _as_httpx(request: httpx.Request) -> Iterator[None]:
    """The pool's errors as a client's callers know them."""
    try:
        yield
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        raise httpx.ConnectError(str(error), request=request) from error
    except httpcore.TimeoutException as error:
        raise httpx.ReadTimeout(str(error), request=request) from error
    except httpcore.NetworkError as error:
        raise httpx.ReadError(str(error), request=request) from error
    except httpcore.ProtocolError as error:
        raise httpx.RemoteProtocolError(str(error), request=request) from error


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
