"""One way to run a server, in production and in tests."""

import asyncio
import gc
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from pydantic import ValidationError

from services.common import logging, metrics, tracing
from services.common.channel import MESSAGE_LIMITS
from services.common.errors import InvalidRequest, ServiceError, Unavailable
from services.common.health import HealthServicer
from services.common.interceptors import Boundary
from services.common.settings import ServiceSettings, from_environment, refused
from services.common.tls import Certificate, assume, own

log = structlog.get_logger(__name__)

Register = Callable[[grpc.aio.Server], None]
Closing = Callable[[], Awaitable[object]]
Bind = Callable[[grpc.aio.Server, str], int]
S = TypeVar("S", bound=ServiceSettings)

_CLOSING_SECONDS = 1.0
_ADDRESS = re.compile(r".+:\d{1,5}")


@dataclass(frozen=True)
class Serving:
    """A server that runs."""

    port: int
    health: HealthServicer

    async def set_ready(self, *names: str, ready: bool = True) -> None:
        """Sets what grpc.health.v1 answers for some names."""
        state = health_pb2.HealthCheckResponse
        for name in names:
            await self.health.set(name, state.SERVING if ready else state.NOT_SERVING)


def between_services(server: grpc.aio.Server, listen: str) -> int:
    """Opens a port with the identity of this process, or without TLS if it has none."""
    if shown := own():
        return server.add_secure_port(listen, shown.identity.for_servers())
    return to_anyone(server, listen)


def showing(certificate: Certificate | None) -> Bind:
    """Opens a port to anyone, with a certificate if there is one."""
    if certificate is None:
        return to_anyone
    return lambda server, listen: server.add_secure_port(listen, certificate.credentials())


def to_anyone(server: grpc.aio.Server, listen: str) -> int:
    """Opens a port without TLS."""
    return server.add_insecure_port(listen)


@asynccontextmanager
async def serving(
    register: Register,
    service: ServiceDescriptor,
    *,
    listen: str = "127.0.0.1:0",
    drain_seconds: float = 0.0,
    connection_seconds: float = 0.0,
    exclusive: bool = False,
    ready: bool = True,
    closing: Closing | None = None,
    health_listen: str = "",
    bind: Bind = between_services,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> AsyncIterator[Serving]:
    """Serves until the block exits, then drains.

    grpc.health.v1 knows the names "", "startup", "readiness", "liveness" and the service's own.

    Args:
        register: adds the servicer to the server.
        service: what reflection and health call it.
        listen: host:port; port 0 takes any free one.
        drain_seconds: how long calls under way may finish.
        connection_seconds: how long a connection takes new calls, give or take a tenth; 0 is for ever.
        exclusive: no other process may listen on the same port.
        ready: False leaves all names but liveness NOT_SERVING until set_ready.
        closing: done once no new caller is sent here, while calls under way go on; it has drain_seconds of which the
            drain has the rest, or one second if those are fewer. What it raises is logged.
        health_listen: host:port where grpc.health.v1 is answered too, and nothing else; empty: nowhere.
        bind: opens the port.
        interceptors: of this server alone; the Boundary tells what they raise.

    Raises:
        Unavailable: the address cannot be bound.
        InvalidRequest: it is no address.
    """
    options = [*MESSAGE_LIMITS, ("grpc.so_reuseport", 0 if exclusive else 1), *_ageing(connection_seconds)]
    server = grpc.aio.server(interceptors=[*tracing.interceptors(), Boundary(), *interceptors], options=options)
    register(server)
    running = Serving(_bound(bind, server, listen), HealthServicer())
    health_pb2_grpc.add_HealthServicer_to_server(running.health, server)
    names = (service.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    await running.set_ready("liveness")
    await running.set_ready("", "startup", "readiness", service.full_name, ready=ready)
    probes = await _probed(running.health, health_listen)
    await server.start()
    log.info("serving", service=service.full_name, port=running.port)
    try:
        yield running
    finally:
        await running.health.enter_graceful_shutdown()
        began = time.monotonic()
        if closing:
            await _closed(closing, max(drain_seconds, _CLOSING_SECONDS))
        await server.stop(max(0.0, drain_seconds - (time.monotonic() - began)))
        await probes.stop(None)


def _ageing(seconds: float) -> Sequence[tuple[str, int]]:
    return [("grpc.max_connection_age_ms", max(1, int(seconds * 1000)))] if seconds else []


async def _closed(closing: Closing, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await closing()
    except TimeoutError:
        log.warning("closing took too long", seconds=seconds)
    except Exception:
        log.exception("closing failed")


async def _probed(health: HealthServicer, listen: str) -> grpc.aio.Server:
    """A server of nothing but health, listening if it is told where."""
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if listen:
        _bound(to_anyone, server, listen)
    await server.start()
    return server


def _bound(bind: Bind, server: grpc.aio.Server, listen: str) -> int:
    if not _ADDRESS.fullmatch(listen):
        raise InvalidRequest(f"cannot listen on {listen}: it is not host:port", remedy="write it as in 0.0.0.0:50051")
    try:
        return bind(server, listen)
    except RuntimeError as error:
        remedy = "stop what listens there, or choose another address of this machine"
        raise Unavailable(f"cannot listen on {listen}: the address is taken or not ours", remedy=remedy) from error


async def _until_signalled(opened: AbstractAsyncContextManager[object]) -> None:
    """Keeps something open until SIGTERM or SIGINT, and closes it; one that comes while it opens undoes that."""
    loop, stop, opening = asyncio.get_running_loop(), asyncio.Event(), asyncio.current_task()

    def on_signal() -> None:
        stop.set()
        if opening:
            opening.cancel()

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, on_signal)
    try:
        async with opened:
            opening = None
            gc.collect()
            gc.freeze()  # what is there by now stays: no later collection need look at it
            await stop.wait()
            log.info("stopping")
    except asyncio.CancelledError:
        if not stop.is_set():
            raise


def run(name: str, opened: Callable[[S], AbstractAsyncContextManager[object]], settings: type[S]) -> None:
    """A service as a process: opens it, waits for a signal, closes it. Exit status 1 says it could not start."""

    async def main(told: S) -> None:
        assume(told.identity)
        async with metrics.exposed(name, told.metrics_listen, told.traces_endpoint):
            await _until_signalled(opened(told))

    with process(name, settings) as told, asyncio.Runner(loop_factory=quickest_loop) as runner:
        runner.run(main(told))


def quickest_loop() -> asyncio.AbstractEventLoop:
    """A tenth of the processor time of an RPC is saved by uvloop, and a quarter of a change of threads."""
    try:
        import uvloop  # noqa: PLC0415  # there is none for Windows
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@contextmanager
def process(name: str, settings: type[S]) -> Iterator[S]:
    """What the environment tells a process, and its logs and traces.

    What is expected to go wrong is told in one line, and makes its exit status 1.
    """
    logging.setup(name)
    try:
        told = from_environment(settings)
        logging.setup(name, level=told.log_level, style=told.log_format)
        tracing.begin(name, told.traces_endpoint)
        yield told
    except (ServiceError, ValidationError) as error:  # settings of a part are read when that is opened
        wrong = refused(error, f"{error.title}.") if isinstance(error, ValidationError) else error
        log.error("cannot run", error=wrong.message, remedy=wrong.remedy)  # noqa: TRY400  # the trace says nothing more
        raise SystemExit(1) from None
    finally:
        tracing.end()
        metrics.end()
