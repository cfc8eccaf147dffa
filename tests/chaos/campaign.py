"""The campaign: a house of processes, runs with known answers in it, and somebody who strikes at it meanwhile."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from google.protobuf import text_format

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.event_pb2 import NextStep, RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_APPROVE, RunState
from services.common.channel import dial
from tests.chaos import final_checks, verdict
from tests.chaos.cases import Case, cases
from tests.chaos.client import PATIENCE_SECONDS, Client, Unsound
from tests.chaos.databases import Store
from tests.chaos.deployment import LEASE_SECONDS, House, standing
from tests.chaos.faults import against_experts, against_journal, against_orchestrators, rage

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

SUPERVISED_SECONDS = 0.2
"""How often it is looked whether a replica could not start."""
ENOUGH = 20
"""So many runs gone wrong say what there is to say: no more are asked for."""


@dataclass
class Outcome:
    """What came of a campaign."""

    seed: int
    backend: str
    runs: int
    tally: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    """Empty: all is well."""
    seconds: float = 0.0


class Campaign:
    """One campaign.

    Args:
        seed: gives the cases and the strikes.
        runs: how many.
        backend: name of the store.
        store: the journal.
        folder: for logs, the experts' ledger, and the events of runs that went wrong.
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
        at_once: int = 16,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.outcome = Outcome(seed, backend, runs)
        self._cases = cases(seed, runs)
        self._store = store
        self._folder = folder
        self._slots = asyncio.Semaphore(at_once)
        self._told = told
        self._wrong = 0
        self._seen: dict[str, tuple[Case, list[RunEvent]]] = {}

    async def run(self) -> Outcome:
        """Goes through with it; what is wrong stands in the outcome."""
        begun = time.monotonic()
        tally, complaints = self.outcome.tally, self.outcome.complaints
        async with standing(self._cases, self._store, self._folder, tally, complaints) as house:
            async with self._raging(house):
                await self._all_runs(house)
            complaints += [what async for what in final_checks.read_again(house, self._seen)]
            complaints += [what async for what in final_checks.close((*house.standing, house.fresh))]
        complaints += final_checks.calls(house.ledger, self._seen, tally)
        tally.update(final_checks.dealt_out(house.ledger))
        self.outcome.seconds = round(time.monotonic() - begun, 1)
        return self.outcome

    def _random(self, name: str) -> Random:
        return Random(f"{self.outcome.seed}/{name}")

    @asynccontextmanager
    async def _raging(self, house: House) -> AsyncIterator[None]:
        """The house is struck at within the block, and whole after it."""
        over = asyncio.Event()
        random, tally = self._random, self.outcome.tally
        struck = {
            "orchestrators": (against_orchestrators(house.orchestrators, LEASE_SECONDS, random("replicas")), 0.6),
            "experts": (against_experts(house.experts, random("models")), 1.5),
            "journal": (against_journal(self._store, random("locks")), 1.5),
        }
        async with asyncio.TaskGroup() as group:
            for name, (deeds, pause) in struck.items():
                group.create_task(
                    rage(deeds, random(name), tally, over, self._folder / "deeds", pause=pause), name=name
                )
            group.create_task(self._supervising(house, over), name="supervising")
            try:
                yield
            finally:
                over.set()

    async def _supervising(self, house: House, over: asyncio.Event) -> None:
        """Starts again what could not start because the journal was away just then."""
        while not over.is_set():
            for member in house.orchestrators:
                self.outcome.tally["started once more"] += await member.revive()
            await asyncio.sleep(SUPERVISED_SECONDS)

    async def _all_runs(self, house: House) -> None:
        async with AsyncExitStack() as stack:
            doors = [
                OrchestratorServiceStub(await stack.enter_async_context(dial(member.address)))
                for member in house.orchestrators
            ]
            async with asyncio.TaskGroup() as group:
                for case in self._cases:
                    await self._slots.acquire()
                    if self._wrong >= ENOUGH:
                        self.outcome.complaints.append("enough has gone wrong: the rest was not asked for")
                        break
                    asked = group.create_task(self._one(case, doors), name=f"case-{case.number}")
                    asked.add_done_callback(lambda _: self._slots.release())

    async def _one(self, case: Case, doors: "Sequence[OrchestratorServiceAsyncStub]") -> None:
        """Asks for one run, watches it a second time, and judges what both have seen."""
        random, tally = self._random(f"case {case.number}"), self.outcome.tally
        asking = Client(doors, random, tally, leaves=0.0 if case.leaves_with_client else 0.02)
        watching = Client(doors, random, tally, leaves=0.05)

        async def watched() -> None:
            await asking.reached(lambda _: True)
            await watching.watch(asking.events[0].run_id)

        async def cancelled() -> None:
            if case.cancels_after and await asking.reached(lambda event: event.sequence >= case.cancels_after):
                await asking.cancel()

        async def approved() -> None:
            waits = case.mode == RUN_MODE_APPROVE
            if waits and await asking.reached(lambda event: event.HasField("approval_requested")):
                await asking.approve(case.plan() if case.edited else None)

        wrong: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                for work in (asking.ask(case.spec()), watched(), cancelled(), approved()):
                    group.create_task(work)
        except* Unsound as errors:
            wrong += map(str, _leaves(errors))
        except* TimeoutError:
            wrong.append(f"it did not end within {PATIENCE_SECONDS:.0f} s")
        else:
            may_be_cancelled = bool(case.cancels_after) or (case.leaves_with_client and asking.left_run)
            wrong += verdict.complaints(case, asking.events, may_be_cancelled=may_be_cancelled)
            wrong += verdict.disagreements(asking.events, watching.events)
        self._judged(case, asking, watching, wrong)

    def _judged(self, case: Case, asking: Client, watching: Client, wrong: Sequence[str]) -> None:
        tally, events = self.outcome.tally, asking.events
        tally["runs"] += 1
        tally.update(counted(events))
        if events:
            self._seen[events[0].run_id] = (case, events)
        if wrong:
            self._wrong += 1
            left = self._folder / f"case-{case.number}.txt"
            told = [*wrong, "asking:", *asking.history, "watching:", *watching.history]
            left.write_text("\n".join([repr(case), *told, *map(text_format.MessageToString, events)]), "utf-8")
            self.outcome.complaints += [f"case {case.number} ({case.shape}): {what}; see {left}" for what in wrong]
        if tally["runs"] % 100 == 0:
            self._told(f"{tally['runs']} runs, {tally['taken over']} takeovers, {self._wrong} wrong")


def counted(events: Sequence[RunEvent]) -> Counter[str]:
    """What happened to one run."""
    tally = Counter({"events": len(events)})
    for event in events:
        if event.HasField("taken_over"):
            tally["taken over"] += 1
        elif event.HasField("task_started"):
            tally["attempts"] += 1
        elif event.HasField("attempt_failed"):
            failed = event.attempt_failed
            tally[f"attempt failed: {failed.failure.code}, {NextStep.Name(failed.next)}"] += 1
        elif event.HasField("plan_approved"):
            tally["plans approved"] += 1
        elif event.HasField("task_ended"):
            tally["tasks reused"] += event.task_ended.result.attempt == 0 and bool(event.task_ended.result.outputs)
        elif event.HasField("run_ended"):
            tally[f"runs {RunState.Name(event.run_ended.state).removeprefix('RUN_STATE_')}"] += 1
    return tally


def _leaves(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for error in errors.exceptions
        for leaf in (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]
