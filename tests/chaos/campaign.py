"""The campaign: starts a deployment, makes runs with known results, injects faults, and checks the results."""

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
from google.rpc import code_pb2

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.event_pb2 import NextStep, RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_APPROVE, RunState
from services.common.channel import dial
from tests.chaos import final_checks, verdict
from tests.chaos.cases import Case, cases
from tests.chaos.client import RUN_TIMEOUT_SECONDS, Client, ProtocolViolation
from tests.chaos.databases import Store
from tests.chaos.deployment import LEASE_SECONDS, Deployment, start_deployment
from tests.chaos.faults import expert_faults, inject_faults, journal_faults, orchestrator_faults

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

SUPERVISION_SECONDS = 0.2
"""Interval of checking for replicas that failed to start."""
MAX_WRONG_RUNS = 20
"""After this number of wrong runs no further ones are started."""


@dataclass
class Outcome:
    """Result of a campaign.

    Attributes:
        tally: counts of events and faults.
        violations: violations found; empty if all runs were right.
    """

    seed: int
    backend: str
    runs: int
    tally: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Campaign:
    """One campaign.

    Args:
        seed: determines cases and faults.
        runs: their number.
        backend: name of the store.
        store: database of the journal.
        folder: for logs, the experts' ledger, and the events of wrong runs.
        concurrency: concurrent runs.
        on_progress: called with a line of progress every hundred runs.
    """

    def __init__(
        self,
        seed: int,
        runs: int,
        backend: str,
        store: Store,
        folder: Path,
        *,
        concurrency: int = 16,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.outcome = Outcome(seed, backend, runs)
        self._cases = cases(seed, runs)
        self._store = store
        self._folder = folder
        self._slots = asyncio.Semaphore(concurrency)
        self._on_progress = on_progress
        self._wrong = 0
        self._seen: dict[str, tuple[Case, list[RunEvent]]] = {}

    async def run(self) -> Outcome:
        """Runs the campaign, and returns its outcome."""
        started = time.monotonic()
        tally, violations = self.outcome.tally, self.outcome.violations
        async with start_deployment(self._cases, self._store, self._folder, tally, violations) as deployment:
            async with self._faults(deployment):
                await self._make_runs(deployment)
            violations += [found async for found in final_checks.read_journal(deployment, self._seen)]
            violations += [found async for found in final_checks.close((*deployment.running, deployment.verifier))]
        violations += final_checks.calls(deployment.ledger, self._seen, tally)
        tally.update(final_checks.injected_faults(deployment.ledger))
        self.outcome.seconds = round(time.monotonic() - started, 1)
        return self.outcome

    def _random(self, name: str) -> Random:
        return Random(f"{self.outcome.seed}/{name}")

    @asynccontextmanager
    async def _faults(self, deployment: Deployment) -> AsyncIterator[None]:
        """Injects faults during the block; afterwards all processes run again."""
        stop = asyncio.Event()
        random, tally = self._random, self.outcome.tally
        targets = {
            "orchestrators": (orchestrator_faults(deployment.orchestrators, LEASE_SECONDS, random("replicas")), 0.6),
            "experts": (expert_faults(deployment.experts, random("models")), 1.5),
            "journal": (journal_faults(self._store, random("locks")), 1.5),
        }
        async with asyncio.TaskGroup() as group:
            for name, (faults, pause) in targets.items():
                log = self._folder / "faults"
                group.create_task(inject_faults(faults, random(name), tally, stop, log, pause=pause), name=name)
            group.create_task(self._supervise(deployment, stop), name="supervisor")
            try:
                yield
            finally:
                stop.set()

    async def _supervise(self, deployment: Deployment, stop: asyncio.Event) -> None:
        """Restarts orchestrators that could not start because the journal was unavailable."""
        while not stop.is_set():
            for process in deployment.orchestrators:
                self.outcome.tally["restarted"] += await process.revive()
            await asyncio.sleep(SUPERVISION_SECONDS)

    async def _make_runs(self, deployment: Deployment) -> None:
        async with AsyncExitStack() as stack:
            replicas = [
                OrchestratorServiceStub(await stack.enter_async_context(dial(process.address)))
                for process in deployment.orchestrators
            ]
            async with asyncio.TaskGroup() as group:
                for case in self._cases:
                    await self._slots.acquire()
                    if self._wrong >= MAX_WRONG_RUNS:
                        self.outcome.violations.append(f"stopped after {MAX_WRONG_RUNS} wrong runs")
                        break
                    run = group.create_task(self._run_case(case, replicas), name=f"case-{case.number}")
                    run.add_done_callback(lambda _: self._slots.release())

    async def _run_case(self, case: Case, replicas: "Sequence[OrchestratorServiceAsyncStub]") -> None:
        """Makes one run, watches it with a second client, and checks the events of both."""
        random, tally = self._random(f"case {case.number}"), self.outcome.tally
        owner = Client(replicas, random, tally, leave_share=0.0 if case.cancel_on_disconnect else 0.02)
        watcher = Client(replicas, random, tally, leave_share=0.05)

        async def watch() -> None:
            await owner.wait_for(lambda _: True)
            await watcher.watch(owner.events[0].run_id)

        async def cancel() -> None:
            if case.cancels_after and await owner.wait_for(lambda event: event.sequence >= case.cancels_after):
                await owner.cancel()

        async def approve() -> None:
            waits = case.mode == RUN_MODE_APPROVE
            if waits and await owner.wait_for(lambda event: event.HasField("approval_requested")):
                await owner.approve(case.plan() if case.edited else None)

        wrong: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                for work in (owner.run(case.spec()), watch(), cancel(), approve()):
                    group.create_task(work)
        except* ProtocolViolation as errors:
            wrong += map(str, _leaves(errors))
        except* TimeoutError:
            wrong.append(f"it did not end within {RUN_TIMEOUT_SECONDS:.0f} s")
        else:
            may_be_cancelled = bool(case.cancels_after) or (case.cancel_on_disconnect and owner.left_stream)
            wrong += verdict.violations(case, owner.events, may_be_cancelled=may_be_cancelled)
            wrong += verdict.disagreements(owner.events, watcher.events)
        self._record(case, owner, watcher, wrong)

    def _record(self, case: Case, owner: Client, watcher: Client, wrong: Sequence[str]) -> None:
        tally, events = self.outcome.tally, owner.events
        tally["runs"] += 1
        tally.update(counted(events))
        if events:
            self._seen[events[0].run_id] = (case, events)
        if wrong:
            self._wrong += 1
            file = self._folder / f"case-{case.number}.txt"
            lines = [*wrong, "owner:", *owner.history, "watcher:", *watcher.history]
            file.write_text("\n".join([repr(case), *lines, *map(text_format.MessageToString, events)]), "utf-8")
            self.outcome.violations += [f"case {case.number} ({case.shape}): {found}; see {file}" for found in wrong]
        if tally["runs"] % 100 == 0:
            self._on_progress(f"{tally['runs']} runs, {tally['taken over']} takeovers, {self._wrong} wrong")


def counted(events: Sequence[RunEvent]) -> Counter[str]:
    """Counts of the events of one run, by kind."""
    tally = Counter({"events": len(events)})
    for event in events:
        if event.HasField("taken_over"):
            tally["taken over"] += 1
        elif event.HasField("task_started"):
            tally["attempts"] += 1
        elif event.HasField("attempt_failed"):
            failed = event.attempt_failed
            tally[f"attempt failed: {code_pb2.Code.Name(failed.failure.code)}, {NextStep.Name(failed.next)}"] += 1
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
