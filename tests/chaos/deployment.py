"""The processes of the campaign: replicas over one journal, experts, and a scripted cast in this process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from services.local.ports import Ports
from tests.chaos.cases import Case
from tests.chaos.cast import cast
from tests.chaos.databases import Store
from tests.chaos.processes import Member

LEASE_SECONDS = 1.5
ATTEMPT_SECONDS = 1.0
REPLICAS = 2
EXPERTS = {"north": 2, "south": 1}
"""How many replicas each expert has."""


@dataclass(frozen=True)
class House:
    """The processes, and the folder that the experts share."""

    orchestrators: Sequence[Member]
    experts: Sequence[Member]
    fresh: Member
    """A replica that does not run until the end."""
    ledger: Path

    @property
    def standing(self) -> Sequence[Member]:
        return (*self.orchestrators, *self.experts)


@asynccontextmanager
async def standing(
    cases: Sequence[Case], store: Store, folder: Path, tally: Counter[str], complaints: list[str]
) -> AsyncIterator[House]:
    """Starts a house; what is left of it is killed when the block exits.

    Args:
        cases: what its planner knows.
        store: its journal.
        folder: for its logs.
        tally: counts what goes wrong by intent.
        complaints: told of what must not be.
    """
    ledger = folder / "ledger"
    ledger.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(Ports())
        addresses = {name: [ports.reserve() for _ in range(count)] for name, count in EXPERTS.items()}
        peers = await stack.enter_async_context(cast(cases, addresses, tally, complaints))
        told = {
            **{f"ORCHESTRATOR_{name.upper()}": address for name, address in peers.items()},
            "ORCHESTRATOR_JOURNAL": store.setting,
            "ARTIFACTS_URL": (folder / "artifacts").as_uri(),
            "ORCHESTRATOR_LEASE_SECONDS": str(LEASE_SECONDS),
            "ORCHESTRATOR_ATTEMPT_SECONDS": str(ATTEMPT_SECONDS),
            "HUGGINGGPT_HOME": str(folder),
        }

        def orchestrator(name: str) -> Member:
            own = ports.reserve()
            return Member(name, "services.orchestrator", own, {**told, "ORCHESTRATOR_LISTEN": own}, folder)

        def expert(name: str, own: str) -> Member:
            settings = {"CHAOS_LISTEN": own, "CHAOS_LEDGER": str(ledger)}
            return Member(name, "tests.chaos.expert", own, settings, folder)

        house = House(
            orchestrators=[orchestrator(f"orchestrator-{number}") for number in range(1, REPLICAS + 1)],
            experts=[
                expert(f"{name}-{number}", address)
                for name, replicas in addresses.items()
                for number, address in enumerate(replicas, start=1)
            ],
            fresh=orchestrator("fresh"),
            ledger=ledger,
        )
        for member in (*house.standing, house.fresh):
            stack.push_async_callback(member.kill)
        await asyncio.gather(*(member.start() for member in house.standing))
        yield house
