"""Resident memory of each light service alone, and of a planner that has planned; its weights; its longest plan."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gateway.admission import MAX_REQUEST_BYTES
from protos.hugginggpt.internal.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.v1.run_pb2 import ROLE_USER, Turn
from services.common.channel import connect
from services.planner.embedded.learned import weights
from tests.bench.accounts import account, accounts, cpu_seconds, parent
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.local_stack import TASK
from tests.bench.processes import service
from tests.bench.rows import Row, gap
from tests.bench.service_processes import rooms
from tests.fakes import FakeExpert, card
from tests.support.long_requests import LONG_REQUESTS

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub

MOST_MB, WORKED_MB, WEIGHTS_MB = 150, 250, 10
LONGEST_CPU_SECONDS = 2.0
PLANS = 500
SERVICES = {
    "plan.rss_mb": ("services.planner", "PLANNER"),
    "run.rss_mb": ("services.orchestrator", "ORCHESTRATOR"),
    "run.selector_rss_mb": ("services.selector", "SELECTOR"),
    "run.responder_rss_mb": ("services.responder", "RESPONDER"),
    "gateway.rss_mb": ("gateway", "GATEWAY"),
}


async def rows() -> list[Row]:
    fresh = [await _resident(name, module, prefix) for name, (module, prefix) in SERVICES.items()]
    return [*fresh, await _worked(), _weights(), await _longest()]


async def _resident(name: str, module: str, prefix: str) -> Row:
    with TemporaryDirectory() as home:
        async with service(module, prefix, Path(home)) as running:
            resident = round(await running.resident_mb())
    return Row(name, resident, "MB", MOST_MB, note=f"python -m {module}, just started")


async def _worked() -> Row:
    with TemporaryDirectory() as home:
        async with (
            FakeExpert("noop", [card("noop", TASK)]).serving() as expert,
            rooms(Path(home), expert, {}) as (processes, _),
            connect(processes["planner"].address) as channel,
        ):
            planner = PlannerServiceStub(channel)
            for number in range(PLANS):
                asked = PlanRequest(conversation=[Turn(role=ROLE_USER, text=f"Summarize: these are {number} words.")])
                async for _ in planner.Plan(asked, timeout=PATIENCE_SECONDS, wait_for_ready=True):
                    pass
            resident = round(await processes["planner"].resident_mb())
    return Row("plan.worked_rss_mb", resident, "MB", WORKED_MB, note=f"the planner after {PLANS} plans without an LLM")


async def _longest() -> Row:
    name = "plan.longest_cpu_s"
    if not account(os.getpid()):
        return gap(name, "s", LONGEST_CPU_SECONDS, "the system does not tell the processor time of ended children")
    taken = dict[str, float]()
    with TemporaryDirectory() as home:
        async with (
            FakeExpert("noop", [card("noop", TASK)]).serving() as expert,
            rooms(Path(home), expert, {}) as (processes, _),
            connect(processes["planner"].address) as channel,
        ):
            planner = PlannerServiceStub(channel)
            await _planned(
                planner, LONG_REQUESTS["one word"](MAX_REQUEST_BYTES)
            )  # starts the process for long requests
            for kind, make in LONG_REQUESTS.items():
                before = _cpu_seconds(processes["planner"].pid)
                await _planned(planner, make(MAX_REQUEST_BYTES))
                taken[kind] = _cpu_seconds(processes["planner"].pid) - before
    slowest = max(taken, key=lambda kind: taken[kind])
    note = f"processor time of the planner's processes for a request of 1 MB; of {len(taken)} the longest: {slowest}"
    return Row(name, round(taken[slowest], 2), "s", LONGEST_CPU_SECONDS, note=note)


async def _planned(planner: "PlannerServiceAsyncStub", text: str) -> None:
    asked = PlanRequest(conversation=[Turn(role=ROLE_USER, text=text)])
    async for _ in planner.Plan(asked, timeout=PATIENCE_SECONDS, wait_for_ready=True):
        pass


def _cpu_seconds(pid: int) -> float:
    """Of a process, its children, and those of them that have ended."""
    children = (found for _, found in accounts() if parent(found) == pid)
    return sum(cpu_seconds(found, ended=True) for found in (account(pid), *children))


def _weights() -> Row:
    megabytes = Path(weights.__file__).with_suffix(".npz").stat().st_size / 1e6
    return Row("plan.weights_mb", round(megabytes, 2), "MB", WEIGHTS_MB, note="what the planner without an LLM learned")
