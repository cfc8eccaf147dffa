"""Checks after all runs have ended: the journal as a new replica reads it, the processes' logs, the experts' calls."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.gateway_pb2 import GetRunRequest, ListRunsRequest
from protos.hugginggpt.v1.run_pb2 import Run
from services.common import call_context
from services.common.channel import connect
from tests.chaos import verdict
from tests.chaos.cases import Case
from tests.chaos.client import Client, ProtocolViolation
from tests.chaos.deployment import Deployment
from tests.chaos.processes import ManagedProcess

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

PAGE = 500

Seen = Mapping[str, tuple[Case, Sequence[RunEvent]]]
"""Cases and the events that a client received, by run id."""


async def read_journal(deployment: Deployment, seen: Seen) -> AsyncIterator[str]:
    """Starts a new replica, and yields differences between the journal and the received events."""
    await deployment.verifier.start()
    async with connect(deployment.verifier.address) as channel:
        stub = OrchestratorServiceStub(channel)
        listed = [run async for run in _listed(stub)]
        if missing := seen.keys() - {run.run_id for run in listed}:
            yield f"runs missing in the journal: {sorted(missing)}"
        for run in listed:
            if run.run_id not in seen:
                yield f"the journal has run {run.run_id}, {run.spec.request}, which no client knows"
                continue
            case, events = seen[run.run_id]
            for difference in await _differences(stub, run, events):
                yield f"case {case.number}: {difference}"


async def close(processes: Sequence[ManagedProcess]) -> AsyncIterator[str]:
    """Stops processes with SIGTERM; yields unexpected exits, processes that do not stop, and errors in logs."""
    for process in processes:
        if process.exited_unexpectedly:
            yield f"{process.name} exited unexpectedly"
        try:
            await process.stop()
        except TimeoutError:
            yield f"{process.name} does not exit after SIGTERM"
        for error in process.errors():
            yield error


def injected_faults(ledger: Path) -> Counter[str]:
    """Counts of faults that the experts have injected."""
    return Counter(f"injected: {file.name.split('.')[2]}" for file in ledger.glob("*.*.*"))


def calls(ledger: Path, seen: Seen, tally: Counter[str]) -> list[str]:
    """Counts the calls that experts received, and returns tasks that were called with different seeds.

    Calls may arrive after their task's end, from a paused replica or at a paused expert.
    """
    ended = {
        f"{case.number}-{event.task_id}": event.time.ToNanoseconds() / 1e9
        for case, events in seen.values()
        for event in events
        if event.HasField("task_ended")
    }
    seeds: defaultdict[str, set[str]] = defaultdict(set)
    for line in (ledger / "calls").read_text(encoding="utf-8").splitlines():
        call_time, key, seed = line.split()
        seeds[key].add(seed)
        tally["calls"] += 1
        tally["calls after the task's end"] += float(call_time) > ended.get(key, float("inf"))
    return [f"task {key} was called with seeds {sorted(used)}" for key, used in seeds.items() if len(used) > 1]


async def _differences(stub: "OrchestratorServiceAsyncStub", brief: Run, events: Sequence[RunEvent]) -> list[str]:
    if not verdict.has_ended(events):
        return []  # the client has reported it
    run = await stub.GetRun(GetRunRequest(run_id=brief.run_id), timeout=10, metadata=call_context.metadata())
    again = Client([stub], Random(0), Counter())
    try:
        await again.watch(run.run_id)
    except (ProtocolViolation, TimeoutError) as error:
        return [f"final watch: {error}"]
    return [*verdict.journal_differences(events, brief, run), *verdict.disagreements(events, again.events)]


async def _listed(stub: "OrchestratorServiceAsyncStub") -> AsyncIterator[Run]:
    token = ""
    while True:
        request = ListRunsRequest(page_size=PAGE, page_token=token)
        page = await stub.ListRuns(request, timeout=10, metadata=call_context.metadata())
        for run in page.runs:
            yield run
        token = page.next_page_token
        if not token:
            return
