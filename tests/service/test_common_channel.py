from collections.abc import Callable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from protos.hugginggpt.internal.v1 import responder_pb2 as pb
from services.common.channel import connect, dial
from services.common.server import serving

RESPONDER = pb.DESCRIPTOR.services_by_name["ResponderService"]


@pytest.mark.parametrize("reach", [connect, dial])
async def test_http_proxy_is_not_used_between_services(
    reach: Callable[[str], grpc.aio.Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with serving(lambda _: None, RESPONDER) as running, reach(f"127.0.0.1:{running.port}") as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]
        check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]  # missing in the types only
        reply = await check(health_pb2.HealthCheckRequest(), timeout=5)
    assert reply.status == health_pb2.HealthCheckResponse.SERVING
