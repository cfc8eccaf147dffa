"""What every test may ask for."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from services.runtime.channel import connect
from services.runtime.server import Register, serving

pytest_plugins = [
    "tests.browsing",
    "tests.postgres",
    "tests.programs",
    "tests.s3",
    "tests.tiny",
    "tests.containers.fixtures",  # after those that it imports
]

Serve = Callable[[Register, ServiceDescriptor], Awaitable[grpc.aio.Channel]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers on loopback; gives a channel to each."""
    async with AsyncExitStack() as stack:

        async def start(register: Register, service: ServiceDescriptor) -> grpc.aio.Channel:
            running = await stack.enter_async_context(serving(register, service))
            return await stack.enter_async_context(connect(f"127.0.0.1:{running.port}"))

        yield start
