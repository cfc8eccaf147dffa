"""Replicas of the orchestrator over one journal: processes that a test may kill, stop or pause; the cast is its own."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from services.common.channel import dial
from services.local.ports import Ports
from tests.chaos.processes import ManagedProcess

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub


@dataclass(frozen=True)
class Replica:
    """One of them, and a way to ask it."""

    process: ManagedProcess
    stub: "OrchestratorServiceAsyncStub"


@asynccontextmanager
async def replicas(
    folder: Path,
    journal: str,
    peer_addresses: Mapping[str, str],
    *,
    lease_seconds: float,
    count: int = 2,
    ready: bool = True,
) -> AsyncIterator[Sequence[Replica]]:
    """Starts replicas; what is left of them is killed when the block exits.

    Args:
        folder: for their logs and what else they keep.
        journal: a path or URL.
        peer_addresses: of planner, selector and responder.
        lease_seconds: the journal's.
        count: how many.
        ready: wait until they serve.
    """
    told = {f"ORCHESTRATOR_{name.upper()}": peer_addresses[name] for name in ("planner", "selector", "responder")}
    told |= {
        "ORCHESTRATOR_JOURNAL": journal,
        "ORCHESTRATOR_LEASE_SECONDS": str(lease_seconds),
        "HUGGINGGPT_HOME": str(folder),
        "LOG_LEVEL": "INFO",
    }
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(Ports())
        standing = []
        for number in range(1, count + 1):
            own = ports.reserve()
            settings = {**told, "ORCHESTRATOR_LISTEN": own}
            process = ManagedProcess(f"orchestrator-{number}", "services.orchestrator", own, settings, folder)
            stack.push_async_callback(process.kill)
            await process.start(ready=ready)
            standing.append(Replica(process, OrchestratorServiceStub(await stack.enter_async_context(dial(own)))))
        yield standing
