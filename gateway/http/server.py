"""HTTP server: uvicorn on a socket bound by the gateway, in the running event loop."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from gateway.http.connection import HttpConnection
from services.common.errors import InvalidRequest, Unavailable
from services.common.tls import Certificate

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 30
UNSENT_BYTES = 512 * 1024
"""Send buffer of the kernel per connection; small, so that a slow client's reading progress is visible."""
LAST_PORT = 65535

_PORT = re.compile(r"[0-9]{1,5}")


def host_and_port(listen: str) -> tuple[str, int]:
    """Splits host:port or [host]:port.

    Raises:
        InvalidRequest: the text has another form.
    """
    host, _, port = listen.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > LAST_PORT:
        raise InvalidRequest(
            f"invalid address {listen}: not host:port", remedy="give an address such as 127.0.0.1:8080"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def require_loopback(listen: str) -> None:
    """Rejects an address that other machines can reach, because requests are not authenticated.

    Raises:
        InvalidRequest: the address is not a loopback address.
    """
    host, _ = host_and_port(listen)
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidRequest(
            f"cannot listen on {listen}: without authentication the gateway only listens on loopback addresses",
            remedy="set GATEWAY_AUTHENTICATION=keys and run hugginggpt keys create, or listen on 127.0.0.1",
        )


@contextmanager
def bind_listener(listen: str) -> Iterator[socket.socket]:
    """Opens a listening socket, which no other process shares.

    Raises:
        Unavailable: the address is in use or is not local.
    """
    host, port = host_and_port(listen)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(
            family, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # with an explicit protocol; otherwise asyncio does not set TCP_NODELAY
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    except OSError as error:
        raise _cannot_listen(listen, error) from error
    with listener:
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise _cannot_listen(listen, error) from error
        yield listener


def _cannot_listen(listen: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot listen on {listen}: {error.strerror or error}",
        remedy="stop the process that listens there, or choose another address with GATEWAY_HTTP_LISTEN",
    )


@asynccontextmanager
async def serve_http(
    app: ASGIApp, listener: socket.socket, drain_seconds: float, certificate: Certificate | None = None
) -> AsyncIterator[Callable[[], None]]:
    """Serves until the block exits, then completes active responses; with a certificate, over HTTPS only.

    Yields a function that stops accepting connections and starts draining.
    """
    tls = certificate.ssl_context() if certificate else None
    config = uvicorn.Config(
        app,
        ssl_context_factory=(lambda *_: tls) if tls else None,
        interface="asgi3",
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    starting = asyncio.create_task(server.up.wait())
    try:
        await asyncio.wait((serving, starting), return_when=asyncio.FIRST_COMPLETED)
        yield server.stop
    finally:
        starting.cancel()
        server.stop()
        await serving


class _Server(uvicorn.Server):
    """Uvicorn server without signal handlers; the process handles signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    def stop(self) -> None:
        """Stops accepting connections; open ones end after their response, or when the drain time is over."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
