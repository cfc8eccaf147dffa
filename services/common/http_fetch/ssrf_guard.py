"""Guard against server-side request forgery: decides which hosts and addresses requests may go to.

A name is resolved once, all its addresses are checked, and the connection goes to one of them, so that a second DNS
answer cannot replace them; the Host header and the certificate are still the name's. Proxies of the environment are not
used, since they would resolve the name again. Unknown, private and unreachable names give the same error, so that a
client cannot explore the network.
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
"""Supported schemes, with the ports that need no entry in the allow list."""

CONNECT_SECONDS = 5.0
"""For resolving a name and connecting to it."""

LOOKUP_THREADS = 16
"""Names resolved at once, in threads of their own, so that a DNS server that does not answer delays nothing else."""

_EXECUTOR = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="dns")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?")


async def resolve_host(host: str, port: int) -> Sequence[Address]:
    """All addresses of a name, by the system's resolver; empty for an unknown name."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_EXECUTOR, look_up)
    except (OSError, UnicodeError):
        return ()
    return [ipaddress.ip_address(sockaddr[0]) for *_, sockaddr in found]


@cache
def system_tls() -> ssl.SSLContext:
    """A TLS context with the default authorities, or those of SSL_CERT_FILE."""
    return httpx.create_ssl_context()


def invalid_url(problem: str) -> InvalidRequest:
    """Error for a URL that cannot be requested."""
    return InvalidRequest(f"the URL {problem}", reason="URL", remedy="give one such as https://example.org/picture.png")


class HostNotFound(PermissionDenied):
    """The name has no address, or none yet. Clients get the same error as for a denied address."""


def address_denied(host: str, kind: type[PermissionDenied] = PermissionDenied) -> PermissionDenied:
    """Error for a host that requests may not go to, or that cannot be reached."""
    return kind(
        f"{host[:100]} cannot be reached from here",
        reason="URL_ADDRESS",
        remedy="use a public https address, upload the file, or ask the operator to allow the host",
    )


def policy_denied(host: str) -> PermissionDenied:
    """Error for an external host under the data policy local."""
    return PermissionDenied(
        f"the data policy of this request is local, and {host[:100]} is an external host",
        reason="POLICY",
        remedy="upload the file, use the data policy open, or ask the operator to add the host to the allow list",
    )


@dataclass(frozen=True)
class SsrfGuard:
    """Checks a request's URL, and then the addresses of its host."""

    allowed: AllowList = field(default_factory=AllowList)
    resolve: Resolve = resolve_host
    tls: Callable[[], ssl.SSLContext] = system_tls
    internal_only: bool = False
    """Only hosts of the allow list are requested; no other name is even resolved."""

    def for_current_caller(self) -> "SsrfGuard":
        """The guard for requests of the current caller: internal only under the data policy local."""
        return self if call_context.allows_external_endpoints() else replace(self, internal_only=True)

    def check(self, url: httpx.URL) -> None:
        """Checks a URL before any name is resolved.

        Raises:
            InvalidRequest: URL, it is not a plain HTTP URL.
            PermissionDenied: URL_ADDRESS, its port is not allowed; POLICY, the host is external.
        """
        if url.scheme not in PORTS:
            raise invalid_url("is neither https nor http")
        if url.userinfo:
            raise invalid_url("contains a user name or password")
        host = url.raw_host.decode("ascii").lower()
        if not (_literal(host) or _HOST.fullmatch(host)):
            raise invalid_url("has no valid host")
        if _NUMBER.fullmatch(host.rpartition(".")[2]) and not _literal(host):
            raise invalid_url("contains an address in an unusual notation")
        port = PORTS[url.scheme] if url.port is None else url.port
        if self.internal_only and not self._is_allowed(host, port):
            raise policy_denied(host)
        if port not in PORTS.values() and not self._is_allowed(host, port):
            raise address_denied(host)

    def allows(self, url: httpx.URL) -> bool:
        """Whether the allow list contains the URL's host and port."""
        return self._is_allowed(url.raw_host.decode("ascii").lower(), url.port or PORTS.get(url.scheme, 0))

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of a host, all of which requests may go to.

        Raises:
            HostNotFound: URL_ADDRESS, the host has no address.
            PermissionDenied: URL_ADDRESS, one of its addresses is not allowed.
        """
        literal = _literal(host)
        found = [literal] if literal else await self.resolve(host, port)
        is_named = self.allowed.allows_host(host, port)
        if not found:
            raise address_denied(host, HostNotFound)
        if not all(is_named or is_public(each) or self.allowed.allows_address(each) for each in found):
            raise address_denied(host)
        return found

    async def check_address(self, url: httpx.URL) -> None:
        """Checks a URL with a literal address, ahead of any connection.

        A name is not resolved, since that would send it to DNS servers, and its addresses may change. They are checked
        on connection.

        Raises:
            PermissionDenied: URL_ADDRESS, the address is not allowed.
        """
        host = url.raw_host.decode("ascii").lower()
        if _literal(host) and not self.allows(url):
            await self.addresses(host, url.port or PORTS[url.scheme])

    def _is_allowed(self, host: str, port: int) -> bool:
        literal = _literal(host)
        return self.allowed.allows_host(host, port) or (literal is not None and self.allowed.allows_address(literal))


class GuardedTransport(httpx.AsyncBaseTransport):
    """Transport that applies a guard to each request of an httpx client, redirects included.

    The client needs trust_env=False, since proxies of the environment would bypass the guard.
    """

    def __init__(self, guard: SsrfGuard) -> None:
        self._guard = guard
        self._pool = httpcore.AsyncConnectionPool(guard.tls(), network_backend=_CheckedConnections(guard))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._guard.check(request.url)
        guarded = httpcore.Request(
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
        with _translated_errors(request):
            reply = await self._pool.handle_async_request(guarded)
        return httpx.Response(
            reply.status, headers=reply.headers, stream=_Stream(reply, request), extensions=reply.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _CheckedConnections(httpcore.AsyncNetworkBackend):
    """Connects only to addresses that the guard has resolved and checked."""

    def __init__(self, guard: SsrfGuard) -> None:
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
        assert isinstance(self._reply.stream, AsyncIterable)  # noqa: S101  # for an asynchronous pool
        with _translated_errors(self._request):
            async for chunk in self._reply.stream:
                yield chunk

    async def aclose(self) -> None:
        await self._reply.aclose()


@contextmanager
def _translated_errors(request: httpx.Request) -> Iterator[None]:
    """Translates errors of the connection pool into those of httpx."""
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
