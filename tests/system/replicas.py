"""Orchestrator processes that share one journal and that a test may kill, stop or pause; their peers are scripted."""

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
    """An orchestrator process and a stub connected to it."""

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
    """Starts replicas, and kills those that still run at exit.

    Args:
        folder: Receives their logs and files.
        journal: Path of a SQLite file, or a PostgreSQL URL.
        peer_addresses: Addresses of planner, selector and responder.
        lease_seconds: Lease of a run.
        count: Number of replicas.
        ready: Wait until they serve.
    """
    common = {f"ORCHESTRATOR_{name.upper()}": peer_addresses[name] for name in ("planner", "selector", "responder")}
    common |= {
        "ORCHESTRATOR_JOURNAL": journal,
        "ORCHESTRATOR_LEASE_SECONDS": str(lease_seconds),
        "HUGGINGGPT_HOME": str(folder),
        "LOG_LEVEL": "INFO",
    }
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(Ports())
        started = []
        for number in range(1, count + 1):
            address = ports.reserve()
            settings = {**common, "ORCHESTRATOR_LISTEN": address}
            process = ManagedProcess(f"orchestrator-{number}", "services.orchestrator", address, settings, folder)
            stack.push_async_callback(process.kill)
            await process.start(ready=ready)
            started.append(Replica(process, OrchestratorServiceStub(await stack.enter_async_context(dial(address)))))
        yield started
