"""Passing wishes on to the orchestrator that owns a run: it would find them in the journal, only later."""

import grpc
import structlog

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.gateway_pb2 import CancelRunRequest
from services.common import call_context
from services.common.channel import dial

log = structlog.get_logger(__name__)

SECONDS = 2.0
"""How long another orchestrator may take to answer."""


class Forwarding:
    """The other orchestrators, by address.

    Args:
        address: this one's own.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    async def cancel(self, run_id: str, address: str) -> None:
        """Tells the owner at an address to look at once; one that does not answer finds the kept wish by itself."""
        if address in ("", self._address):
            return
        async with dial(address) as channel:  # for this once: it is rare, and addresses come and go
            request = CancelRunRequest(run_id=run_id)
            try:
                await OrchestratorServiceStub(channel).CancelRun(
                    request, timeout=SECONDS, metadata=call_context.metadata()
                )
            except grpc.aio.AioRpcError as error:
                log.info("the run's owner was not told", run_id=run_id, code=error.code().name)
