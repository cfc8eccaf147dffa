"""Passing wishes on to the orchestrator that owns a run: it would find them in the journal, only later."""

from types import TracebackType
from typing import Self

import grpc
import structlog

from protos.hugginggpt.v1.orchestrator_pb2 import CancelRunRequest
from protos.hugginggpt.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from services.runtime import caller
from services.runtime.channel import dial

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
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def cancel(self, run_id: str, address: str) -> None:
        """Tells the owner at an address to look at once; one that does not answer finds the kept wish by itself."""
        if address in ("", self._address):
            return
        if address not in self._channels:
            self._channels[address] = dial(address)
        stub = OrchestratorServiceStub(self._channels[address])
        try:
            await stub.Cancel(CancelRunRequest(run_id=run_id), timeout=SECONDS, metadata=caller.metadata())
        except grpc.aio.AioRpcError as error:
            log.info("the run's owner was not told", run_id=run_id, code=error.code().name)
