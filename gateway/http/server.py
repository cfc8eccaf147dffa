"""HTTP on a socket of our own, in the loop that is already running."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from gateway.http.protocol import Wire
from services.common.errors import InvalidRequest, Unavailable
from services.common.tls import Certificate

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 30
UNSENT_BYTES = 512 * 1024
"""Most that the system takes for a client in advance: of a slow one, it shows by this that it reads at all."""
LAST_PORT = 65535

_PORT = re.compile(r"[0-9]{1,5}")


def host_and_port(listen: str) -> tuple[str, int]:
    """The parts of host:port or [host]:port.

    Raises:
        InvalidRequest: it has another form.
    """
    host, _, port = listen.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > LAST_PORT:
        raise InvalidRequest(f"{listen} is not host:port", remedy="give an address such as 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def refuse_strangers(listen: str) -> None:
    """Refuses an address others can reach: nothing asks them who they are.

    Raises:
        InvalidRequest: the address is not a loopback one.
    """
    host, _ = host_and_port(listen)
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidRequest(
            f"will not listen on {listen}: without authentication the gateway is open only to its own machine",
            remedy="set GATEWAY_AUTHENTICATION=keys and make keys with hugginggpt keys create, or listen on 127.0.0.1",
        )


@contextmanager
def bound(listen: str) -> Iterator[socket.socket]:
    """A listening socket that nobody shares.

    Raises:
        Unavailable: the address is taken or not ours.
    """
    host, port = host_and_port(listen)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(
            family, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # named, or asyncio keeps Nagle's delay
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
        remedy="stop what listens there, or choose another address with GATEWAY_HTTP_LISTEN",
    )


@asynccontextmanager
async def serving_http(
    app: ASGIApp, listener: socket.socket, drain_seconds: float, certificate: Certificate | None = None
) -> AsyncIterator[Callable[[], None]]:
    """Serves until the block exits, then lets answers under way finish; with a certificate, by HTTPS alone.

    Yields what has it begin to end before that.
    """
    tls = certificate.ssl_context() if certificate else None
    config = uvicorn.Config(
        app,
        ssl_context_factory=(lambda *_: tls) if tls else None,
        interface="asgi3",
        http=Wire,
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
    """Leaves signals to the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    def stop(self) -> None:
        """Takes no more connections, and ends once those that are open have been served, or are out of time."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
