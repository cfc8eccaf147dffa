"""Forwards commands to the orchestrator that owns a run, which would otherwise find them in the journal, later."""

import grpc
import structlog

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.gateway_pb2 import CancelRunRequest
from services.common import call_context
from services.common.channel import dial

log = structlog.get_logger(__name__)

SECONDS = 2.0
"""Timeout of a forwarded command."""


class CommandForwarder:
    """Sends commands to other orchestrators.

    Args:
        address: this orchestrator's own address.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    async def cancel(self, run_id: str, address: str) -> None:
        """Asks the owner at an address to cancel a run; if it does not answer, it finds the command in the journal."""
        if address in ("", self._address):
            return
        async with dial(address) as channel:  # opened for one call: such calls are rare, and addresses change
            request = CancelRunRequest(run_id=run_id)
            try:
                await OrchestratorServiceStub(channel).CancelRun(
                    request, timeout=SECONDS, metadata=call_context.metadata()
                )
            except grpc.aio.AioRpcError as error:
                log.info("cancel command not forwarded", run_id=run_id, code=error.code().name)
