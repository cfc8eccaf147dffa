"""Processes of the campaign: orchestrators that share a journal, experts, and scripted services in this process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from services.local.ports import Ports
from tests.chaos.cases import Case
from tests.chaos.databases import Store
from tests.chaos.processes import ManagedProcess
from tests.chaos.scripted_services import serve_scripted_services

LEASE_SECONDS = 1.5
ATTEMPT_SECONDS = 1.0
REPLICAS = 2
EXPERTS = {"north": 2, "south": 1}
"""Number of replicas by expert."""


@dataclass(frozen=True)
class Deployment:
    """Processes of the campaign.

    Attributes:
        orchestrators: targets of faults.
        experts: targets of faults.
        verifier: an orchestrator that is started only for the final checks.
        ledger: folder that the experts share.
    """

    orchestrators: Sequence[ManagedProcess]
    experts: Sequence[ManagedProcess]
    verifier: ManagedProcess
    ledger: Path

    @property
    def running(self) -> Sequence[ManagedProcess]:
        return (*self.orchestrators, *self.experts)


@asynccontextmanager
async def start_deployment(
    cases: Sequence[Case], store: Store, folder: Path, tally: Counter[str], violations: list[str]
) -> AsyncIterator[Deployment]:
    """Starts all processes, and kills them when the block exits.

    Args:
        cases: known to the scripted services.
        store: database of the journal.
        folder: for logs.
        tally: counts the faults of the scripted services.
        violations: receives violations.
    """
    ledger = folder / "ledger"
    ledger.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(Ports())
        addresses = {name: [ports.reserve() for _ in range(count)] for name, count in EXPERTS.items()}
        peers = await stack.enter_async_context(serve_scripted_services(cases, addresses, tally, violations))
        common = {
            **{f"ORCHESTRATOR_{name.upper()}": address for name, address in peers.items()},
            "ORCHESTRATOR_JOURNAL": store.setting,
            "ARTIFACTS_URL": (folder / "artifacts").as_uri(),
            "ORCHESTRATOR_LEASE_SECONDS": str(LEASE_SECONDS),
            "ORCHESTRATOR_ATTEMPT_SECONDS": str(ATTEMPT_SECONDS),
            "HUGGINGGPT_HOME": str(folder),
        }

        def orchestrator(name: str) -> ManagedProcess:
            own = ports.reserve()
            return ManagedProcess(name, "services.orchestrator", own, {**common, "ORCHESTRATOR_LISTEN": own}, folder)

        def expert(name: str, own: str) -> ManagedProcess:
            settings = {"CHAOS_LISTEN": own, "CHAOS_LEDGER": str(ledger)}
            return ManagedProcess(name, "tests.chaos.expert", own, settings, folder)

        deployment = Deployment(
            orchestrators=[orchestrator(f"orchestrator-{number}") for number in range(1, REPLICAS + 1)],
            experts=[
                expert(f"{name}-{number}", address)
                for name, replicas in addresses.items()
                for number, address in enumerate(replicas, start=1)
            ],
            verifier=orchestrator("verifier"),
            ledger=ledger,
        )
        for process in (*deployment.running, deployment.verifier):
            stack.push_async_callback(process.kill)
        await asyncio.gather(*(process.start() for process in deployment.running))
        yield deployment
