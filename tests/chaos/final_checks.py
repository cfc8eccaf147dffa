"""What is looked at once all runs have ended: the journal, through a replica that has seen nothing, and the traces."""

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
from tests.chaos.client import Client, Unsound
from tests.chaos.deployment import House
from tests.chaos.processes import Member

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

PAGE = 500

Seen = Mapping[str, tuple[Case, Sequence[RunEvent]]]
"""By id of the run: what was asked for, and all that a watcher saw of it."""


async def read_again(house: House, seen: Seen) -> AsyncIterator[str]:
    """Starts a fresh replica and tells where the journal does not agree with what was seen."""
    await house.fresh.start()
    async with connect(house.fresh.address) as channel:
        stub = OrchestratorServiceStub(channel)
        listed = [run async for run in _listed(stub)]
        if missing := seen.keys() - {run.run_id for run in listed}:
            yield f"the journal has lost runs {sorted(missing)}"
        for run in listed:
            if run.run_id not in seen:
                yield f"the journal has run {run.run_id}, {run.spec.request}, of which nobody was told"
                continue
            case, events = seen[run.run_id]
            for what in await _differences(stub, run, events):
                yield f"case {case.number}: {what}"


async def close(members: Sequence[Member]) -> AsyncIterator[str]:
    """Ends processes as a deployment does; tells of those that do not end, or ended before, and of their logs."""
    for member in members:
        if member.died:
            yield f"{member.name} ended though nobody ended it"
        try:
            await member.stop()
        except TimeoutError:
            yield f"{member.name} does not end after SIGTERM"
        for error in member.errors():
            yield error


def dealt_out(ledger: Path) -> Counter[str]:
    """What the experts have done wrong."""
    return Counter(f"dealt out: {dealt.name.split('.')[2]}" for dealt in ledger.glob("*.*.*"))


def calls(ledger: Path, seen: Seen, tally: Counter[str]) -> list[str]:
    """Counts the calls that came to experts; tells of tasks that were given two seeds.

    Calls may come after their task's end: of a replica or to an expert that was paused, and did not know of it.
    """
    ended = {
        f"{case.number}-{event.task_id}": event.time.ToNanoseconds() / 1e9
        for case, events in seen.values()
        for event in events
        if event.HasField("task_ended")
    }
    seeds: defaultdict[str, set[str]] = defaultdict(set)
    for line in (ledger / "calls").read_text(encoding="utf-8").splitlines():
        came, key, seed = line.split()
        seeds[key].add(seed)
        tally["calls"] += 1
        tally["calls too late to be of use"] += float(came) > ended.get(key, float("inf"))
    return [f"task {key} was given seeds {sorted(given)}" for key, given in seeds.items() if len(given) > 1]


async def _differences(stub: "OrchestratorServiceAsyncStub", brief: Run, events: Sequence[RunEvent]) -> list[str]:
    if not verdict.has_ended(events):
        return []  # told where it was followed
    run = await stub.GetRun(GetRunRequest(run_id=brief.run_id), timeout=10, metadata=call_context.metadata())
    again = Client([stub], Random(0), Counter())
    try:
        await again.watch(run.run_id)
    except (Unsound, TimeoutError) as error:
        return [f"watched again at the end: {error}"]
    return [*verdict.misread(events, brief, run), *verdict.disagreements(events, again.events)]


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
