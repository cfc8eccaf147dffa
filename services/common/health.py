"""The grpc.health.v1 service. Unlike grpcio's own, its watches end with the server instead of delaying its shutdown."""

from typing import Any

from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.change_signal import ChangeSignal

State = health_pb2.HealthCheckResponse


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Health of the services of one server.

    Only a watch's own call writes to its stream: gRPC rejects a second write while one is active.
    """

    def __init__(self) -> None:
        self._states: dict[str, int] = {}
        self._changed = ChangeSignal()
        self._stopping = False

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> State:  # noqa: N802  # as the proto has it
        """Returns the current health of a service; NOT_FOUND for an unknown name."""
        if request.service not in self._states:
            await context.abort(StatusCode.NOT_FOUND, f"unknown service {request.service!r}")
        return State(status=self._states[request.service])

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802  # as the proto has it
        """Sends the health of a service now and after each change; ends when the server stops, with NOT_SERVING."""
        sent = None
        while True:
            version, stopping = self._changed.version, self._stopping
            state = self._states.get(request.service, State.NOT_SERVING if stopping else State.SERVICE_UNKNOWN)
            if state != sent:
                await context.write(State(status=state))
                sent = state
            if stopping:
                return
            await self._changed.wait(version)

    async def set(self, service: str, state: int) -> None:
        """Sets the health of a service; ignored once the server stops."""
        if not self._stopping:
            self._states[service] = state
            self._changed.notify()

    async def enter_graceful_shutdown(self) -> None:
        """Sets all services to NOT_SERVING for good and ends the watches."""
        self._states = dict.fromkeys(self._states, State.NOT_SERVING)
        self._stopping = True
        self._changed.notify()
