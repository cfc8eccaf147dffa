"""grpc.health.v1 whose watches end with the server: one that lasted would hold every stop to the limit of its drain."""

import asyncio
import contextlib
from typing import Any

from grpc_health.v1 import health, health_pb2


class HealthServicer(health.aio.HealthServicer):
    """The health of the services of one server."""

    def __init__(self) -> None:
        super().__init__()
        self._stopping = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802  # as the proto has it
        """Tells a name's health now and at each change; at the end that it serves no more."""
        watching = asyncio.ensure_future(super().Watch(request, context))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((watching, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        await context.write(health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING))

    async def enter_graceful_shutdown(self) -> None:
        """Nothing serves from now on, and whoever watches is told so."""
        await super().enter_graceful_shutdown()
        self._stopping.set()
