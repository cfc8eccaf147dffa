"""Liveness and readiness of the gateway."""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
from fastapi import APIRouter
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.responses import Response

from gateway.json_encoder import dumps
from gateway.openapi import operations
from services.common.errors import Unavailable

CHECK_SECONDS = 2.0

SERVICE = "hugginggpt"
"""Name by which clients recognize this gateway among other HTTP servers."""


class HealthRoutes:
    """GET /healthz and GET /readyz.

    Args:
        version: version of the gateway.
        backends: channels by service name.
    """

    def __init__(self, version: str, backends: Mapping[str, grpc.aio.Channel]) -> None:
        self._version = version
        self._backends = {name: health_pb2_grpc.HealthStub(channel) for name, channel in backends.items()}

    def router(self) -> APIRouter:
        router = APIRouter(tags=["health"], default_response_class=Response)
        router.add_api_route("/healthz", self.get_health, methods=["GET"], **operations.HEALTH)
        router.add_api_route("/readyz", self.get_readiness, methods=["GET"], **operations.HEALTH)
        return router

    async def get_health(self) -> Response:
        """Reports that this process is alive, regardless of other services."""
        return self._ok()

    async def get_readiness(self) -> Response:
        """Reports whether the orchestrator and the selector are reachable."""
        answers = await asyncio.gather(*map(_serves, self._backends.values()))
        missing = [name for name, serves in zip(self._backends, answers, strict=True) if not serves]
        if missing:
            raise Unavailable(
                f"not ready: {' and '.join(missing)} cannot be reached",
                reason="NOT_READY",
                remedy="try again later; if it persists, run hugginggpt doctor",
            )
        return self._ok()

    def _ok(self) -> Response:
        return Response(
            dumps({"status": "ok", "service": SERVICE, "version": self._version}), media_type="application/json"
        )


async def _serves(stub: Any) -> bool:
    try:
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=CHECK_SECONDS)
    except grpc.aio.AioRpcError:
        return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
