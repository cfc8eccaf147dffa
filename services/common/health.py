"""grpc.health.v1 whose watches end with the server: one that lasted would hold every stop to the limit of its drain."""

import asyncio
from typing import Any

from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc

State = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):
    """The health of the services of one server.

    Each watch is told by its own call alone: a second writer beside it may find its write under way, which gRPC
    refuses.
    """

    def __init__(self) -> None:
        self._states: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._stopping = False

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> State:  # noqa: N802  # as the proto has it
        """Tells a name's health now."""
        if request.service not in self._states:
            await context.abort(StatusCode.NOT_FOUND, f"nothing is called {request.service!r} here")
        return State(status=self._states[request.service])

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802  # as the proto has it
        """Tells a name's health now and at each change; at the end that it serves no more."""
        told = None
        while True:
            changed, stopping = self._changed, self._stopping
            state = self._states.get(request.service, State.NOT_SERVING if stopping else State.SERVICE_UNKNOWN)
            if state != told:
                await context.write(State(status=state))
                told = state
            if stopping:
                return
            await changed.wait()

    async def set(self, service: str, state: int) -> None:
        """Sets what is told of a name, until the shutdown."""
        if not self._stopping:
            self._states[service] = state
            self._tell()

    async def enter_graceful_shutdown(self) -> None:
        """Nothing serves from now on, and whoever watches is told so."""
        self._states = dict.fromkeys(self._states, State.NOT_SERVING)
        self._stopping = True
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
