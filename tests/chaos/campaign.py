"""The campaign: a house of processes, runs with known answers in it, and somebody who strikes at it meanwhile."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import grpc
from google.protobuf import text_format

from protos.hugginggpt.v1.orchestrator_pb2 import GetRunRequest, ListRunsRequest
from protos.hugginggpt.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.types_pb2 import RunEvent, RunState
from services.ports import Ports
from services.runtime import caller
from services.runtime.channel import connect, dial
from tests.chaos import verdict
from tests.chaos.cases import Case, cases
from tests.chaos.cast import cast
from tests.chaos.client import PATIENCE_SECONDS, Client, Unsound
from tests.chaos.monkey import against_experts, against_journal, against_orchestrators, rage
from tests.chaos.processes import Member
from tests.chaos.stores import Store

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

LEASE_SECONDS = 2.0
ATTEMPT_SECONDS = 1.0
REPLICAS = 2
EXPERTS = {"north": 2, "south": 1}
"""How many replicas each expert has."""
PAGE = 500


@dataclass
class Outcome:
    """What came of a campaign."""

    seed: int
    runs: int
    backend: str
    tally: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    """Empty: all is well."""
    seconds: float = 0.0


@dataclass(frozen=True)
class House:
    """The processes."""

    orchestrators: Sequence[Member]
    experts: Sequence[Member]
    fresh: Member
    """A replica that does not run until the end."""


class Campaign:
    """One campaign.

    Args:
        seed: gives the cases and the strikes.
        runs: how many.
        backend: name of the store.
        store: the journal.
        folder: for logs, the ledger and what runs that went wrong have left.
        at_once: runs under way at once.
        told: given a line of progress now and then.
    """

    def __init__(
        self,
        seed: int,
        runs: int,
        backend: str,
        store: Store,
        folder: Path,
        *,
        at_once: int = 32,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.outcome = Outcome(seed, runs, backend)
        self._cases = cases(seed, runs)
        self._store = store
        self._folder = folder
        self._slots = asyncio.Semaphore(at_once)
        self._told = told
        self._seen: dict[str, tuple[Case, list[RunEvent]]] = {}

    async def run(self) -> Outcome:
        """Goes through with it; what is wrong stands in the outcome."""
        begun = time.monotonic()
        over = asyncio.Event()
        async with self._standing() as house:
            async with asyncio.TaskGroup() as raging:
                for name, deeds, pause in (
                    (
                        "orchestrators",
                        against_orchestrators(house.orchestrators, LEASE_SECONDS, self._random("o")),
                        1.5,
                    ),
                    ("experts", against_experts(house.experts, self._random("e")), 2.0),
                    ("journal", against_journal(self._store, self._random("j")), 2.0),
                ):
                    raging.create_task(rage(deeds, self._random(name), self.outcome.tally, over, pause=pause))
                try:
                    await self._all_runs(house)
                finally:
                    over.set()
            await self._closed(house)
        self._dealt_out()
        self.outcome.seconds = round(time.monotonic() - begun, 1)
        return self.outcome

    def _random(self, name: str) -> Random:
        return Random(f"{self.outcome.seed}/{name}")

    @asynccontextmanager
    async def _standing(self) -> AsyncIterator[House]:
        ledger = self._folder / "ledger"
        ledger.mkdir(parents=True)
        async with AsyncExitStack() as stack:
            ports = stack.enter_context(Ports())
            experts = {name: [ports.keep() for _ in range(count)] for name, count in EXPERTS.items()}
            peers = await stack.enter_async_context(
                cast(self._cases, experts, self.outcome.tally, self.outcome.complaints)
            )
            told = {
                **{f"ORCHESTRATOR_{name.upper()}": address for name, address in peers.items()},
                "ORCHESTRATOR_JOURNAL": self._store.setting,
                "ORCHESTRATOR_LEASE_SECONDS": str(LEASE_SECONDS),
                "ORCHESTRATOR_ATTEMPT_SECONDS": str(ATTEMPT_SECONDS),
                "DRAIN_SECONDS": "1",
            }

            def orchestrator(name: str) -> Member:
                own = ports.keep()
                settings = {**told, "ORCHESTRATOR_LISTEN": own}
                return Member(name, "services.orchestrator", own, settings, self._folder)

            def expert(name: str, own: str) -> Member:
                settings = {"CHAOS_LISTEN": own, "CHAOS_LEDGER": str(ledger)}
                return Member(name, "tests.chaos.expert", own, settings, self._folder)

            house = House(
                [orchestrator(f"orchestrator-{number}") for number in range(1, REPLICAS + 1)],
                [
                    expert(f"{name}-{number}", address)
                    for name, addresses in experts.items()
                    for number, address in enumerate(addresses, start=1)
                ],
                orchestrator("fresh"),
            )
            for member in (*house.orchestrators, *house.experts, house.fresh):
                stack.push_async_callback(member.kill)
            await asyncio.gather(*(member.start() for member in (*house.orchestrators, *house.experts)))
            yield house

    async def _all_runs(self, house: House) -> None:
        async with AsyncExitStack() as stack:
            doors = [
                OrchestratorServiceStub(await stack.enter_async_context(dial(member.address)))
                for member in house.orchestrators
            ]
            async with asyncio.TaskGroup() as group:
                for case in self._cases:
                    await self._slots.acquire()
                    asking = group.create_task(self._one(case, doors), name=f"case-{case.number}")
                    asking.add_done_callback(lambda _: self._slots.release())

    async def _one(self, case: Case, doors: "Sequence[OrchestratorServiceAsyncStub]") -> None:
        """Asks for one run, watches it a second time, and judges what both have seen."""
        random = self._random(f"client {case.number}")
        asking = Client(doors, random, self.outcome.tally, leaves=0.0 if case.leaves_with_client else 0.02)
        watching = Client(doors, random, self.outcome.tally, leaves=0.05)

        async def beside() -> None:
            run_id = await asking.run_id
            async with asyncio.TaskGroup() as group:
                group.create_task(watching.watch(run_id))
                if case.cancels_after:
                    group.create_task(asking.cancel(run_id, case.cancels_after))

        wrong: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asking.ask(case.spec()))
                group.create_task(beside())
        except* Unsound as errors:
            wrong += [str(error) for error in _flat(errors)]
        except* TimeoutError:
            wrong.append(f"it did not end within {PATIENCE_SECONDS:.0f} s")
        else:
            gone = case.leaves_with_client and asking.left_run
            wrong += verdict.complaints(case, asking.events, may_be_cancelled=bool(case.cancels_after) or gone)
            wrong += verdict.disagreements(asking.events, watching.events)
        self._judged(case, asking.events, wrong)

    def _judged(self, case: Case, events: list[RunEvent], wrong: Sequence[str]) -> None:
        tally = self.outcome.tally
        tally["runs"] += 1
        if events:
            self._seen[events[0].run_id] = (case, events)
            tally[f"run {RunState.Name(events[-1].run_ended.state).removeprefix('RUN_STATE_')}"] += 1
        for event in events:
            kind = event.WhichOneof("event")
            tally["events"] += 1
            tally["taken over"] += kind == "taken_over"
            tally["attempts"] += kind == "task_started"
            if kind == "attempt_failed":
                tally[f"attempt failed: {event.attempt_failed.failure.code}, {event.attempt_failed.next}"] += 1
        if wrong:
            self._complain(case, events, wrong)
        if tally["runs"] % 100 == 0:
            self._told(f"{tally['runs']} runs, {tally['taken over']} taken over, {len(self.outcome.complaints)} wrong")

    def _complain(self, case: Case, events: Sequence[RunEvent], wrong: Sequence[str]) -> None:
        left = self._folder / f"case-{case.number}.txt"
        left.write_text("\n".join([repr(case), *wrong, *map(text_format.MessageToString, events)]))
        self.outcome.complaints += [f"case {case.number} ({case.shape}): {what}; see {left}" for what in wrong]

    async def _closed(self, house: House) -> None:
        """Ends all processes, reads the journal through a replica that has seen nothing, and then the logs."""
        complaints = self.outcome.complaints
        for member in (*house.orchestrators, *house.experts):
            if member.died:
                complaints.append(f"{member.name} ended though nobody ended it")
        await house.fresh.start()
        await self._read_again(house.fresh.address)
        for member in (*house.orchestrators, house.fresh, *house.experts):
            try:
                await member.stop()
            except TimeoutError:
                complaints.append(f"{member.name} does not end after SIGTERM")
            complaints += member.errors()

    async def _read_again(self, address: str) -> None:
        complaints = self.outcome.complaints
        async with connect(address) as channel:
            stub = OrchestratorServiceStub(channel)
            listed = [run.run_id async for run in _listed(stub)]
            if sorted(listed) != sorted(self._seen):
                complaints.append(f"the journal lists {len(listed)} runs, {len(self._seen)} were seen")
            for run_id in listed:
                case, events = self._seen.get(run_id, (None, []))
                if not case or not events:
                    complaints.append(f"nobody was told of run {run_id}")
                    continue
                run = await stub.Get(GetRunRequest(run_id=run_id), timeout=10, metadata=caller.metadata())
                again = Client([stub], self._random(run_id), Counter())
                with suppress(TimeoutError):
                    await again.watch(run_id)
                wrong = [*verdict.misread(events, run), *verdict.disagreements(events, again.events)]
                if wrong:
                    self._complain(case, events, wrong)

    def _dealt_out(self) -> None:
        """Counts what the experts have done wrong, and which calls came too late to be of use."""
        ledger = self._folder / "ledger"
        for dealt in ledger.glob("*.*.*"):
            self.outcome.tally[f"dealt out: {dealt.name.split('.')[2]}"] += 1
        ended = {
            f"{case.number}-{event.task_id}": event.time.ToNanoseconds() / 1e9
            for case, events in self._seen.values()
            for event in events
            if event.HasField("task_ended")
        }
        for line in (ledger / "calls").read_text().splitlines():
            came, key = line.split()
            self.outcome.tally["calls"] += 1
            self.outcome.tally["calls of tasks that had ended"] += float(came) > ended.get(key, float("inf"))


def _flat(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for error in errors.exceptions
        for leaf in (_flat(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]


async def _listed(stub: "OrchestratorServiceAsyncStub"):  # type: ignore[no-untyped-def]
    token = ""
    while True:
        request = ListRunsRequest(page_size=PAGE, page_token=token)
        page = await stub.List(request, timeout=10, metadata=caller.metadata())
        for run in page.runs:
            yield run
        if not (token := page.next_page_token):
            return
