"""Fixtures and plugins for all tests."""

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import grpc
import pytest
import structlog
from google.protobuf.descriptor import ServiceDescriptor

from services.common.channel import connect
from services.common.server import Register, serving
from services.local.ports import free_address

pytest_plugins = [
    "tests.support.required_programs",  # before those that import it
    "tests.support.scheduling",
    "tests.support.browser",
    "tests.support.postgres",
    "tests.support.s3",
    "tests.tiny",
    "tests.containers.fixtures",  # after those that it imports
]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores Ctrl-C in what it starts in the background, and programs that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

Serve = Callable[[Register, ServiceDescriptor], Awaitable[grpc.aio.Channel]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Function that starts a gRPC server on loopback and returns a channel to it."""
    async with AsyncExitStack() as stack:

        async def start(register: Register, service: ServiceDescriptor) -> grpc.aio.Channel:
            running = await stack.enter_async_context(serving(register, service))
            return await stack.enter_async_context(connect(f"127.0.0.1:{running.port}"))

        yield start


@pytest.fixture
def unused_tcp_port() -> int:
    """A free port that the system assigns to no other server, unlike that of the plugin's fixture of this name."""
    return int(free_address("127.0.0.1:0", option="port").rpartition(":")[2])


@pytest.fixture(autouse=True)
def _restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the logging configuration after each test, and disables logger caches, which would outlive the test."""
    configure, before = structlog.configure, structlog.get_config()
    monkeypatch.setattr(
        structlog, "configure", lambda **given: configure(**given | {"cache_logger_on_first_use": False})
    )
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    configure(**before)
    root.handlers = handlers
    root.setLevel(level)
