"""Cancel commands are forwarded to the orchestrator that owns the run."""

import asyncio
from functools import partial
from typing import Any

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2
from services.common.server import serving
from services.orchestrator.runs.service import CommandForwarder
from tests.fakes import ScriptedOrchestrator


class Owner(ScriptedOrchestrator):
    """Records the runs that it is to cancel."""

    async def CancelRun(self, request: gateway_pb2.CancelRunRequest, context: Any) -> gateway_pb2.CancelRunResponse:
        self.cancelled.append(request.run_id)
        return gateway_pb2.CancelRunResponse()


async def test_cancel_is_forwarded_only_to_other_owners() -> None:
    owner = Owner()
    register = partial(rpc.add_OrchestratorServiceServicer_to_server, owner)
    service = orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"]
    async with asyncio.timeout(10), serving(register, service) as running:
        forwarder = CommandForwarder("me:1")
        await forwarder.cancel("run_1", f"127.0.0.1:{running.port}")
        await forwarder.cancel("run_2", "me:1")
        await forwarder.cancel("run_3", "")
    assert owner.cancelled == ["run_1"]


async def test_forwarding_to_an_unreachable_owner_returns() -> None:
    async with asyncio.timeout(10):
        await CommandForwarder("me:1").cancel("run_1", "127.0.0.1:1")
