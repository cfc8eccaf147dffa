"""Resident memory of each service, and of a planner after use; size of its weights; CPU time of its longest plan."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gateway.core.validation import MAX_REQUEST_BYTES
from protos.hugginggpt.internal.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.v1.run_pb2 import ROLE_USER, Turn
from services.common.channel import connect
from services.planner.embedded.learned import weights
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.local_stack import TASK
from tests.bench.proc_stat import all_stats, cpu_seconds, parent_id, process_stat
from tests.bench.processes import service
from tests.bench.rows import Row, gap
from tests.bench.service_processes import start_services
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
    started = [await _resident(name, module, prefix) for name, (module, prefix) in SERVICES.items()]
    return [*started, await _after_plans(), _weights(), await _longest_plan()]


async def _resident(name: str, module: str, prefix: str) -> Row:
    with TemporaryDirectory() as home:
        async with service(module, prefix, Path(home)) as running:
            resident = round(await running.resident_mb())
    return Row(name, resident, "MB", MOST_MB, note=f"python -m {module}, just started")


async def _after_plans() -> Row:
    with TemporaryDirectory() as home:
        async with (
            FakeExpert("noop", [card("noop", TASK)]).serving() as expert,
            start_services(Path(home), expert, {}) as (processes, _),
            connect(processes["planner"].address) as channel,
        ):
            planner = PlannerServiceStub(channel)
            for number in range(PLANS):
                await _plan(planner, f"Summarize: these are {number} words.")
            resident = round(await processes["planner"].resident_mb())
    return Row("plan.worked_rss_mb", resident, "MB", WORKED_MB, note=f"the planner after {PLANS} plans without an LLM")


async def _longest_plan() -> Row:
    name = "plan.longest_cpu_s"
    if not process_stat(os.getpid()):
        return gap(name, "s", LONGEST_CPU_SECONDS, "the system does not report the CPU time of ended children")
    taken = dict[str, float]()
    with TemporaryDirectory() as home:
        async with (
            FakeExpert("noop", [card("noop", TASK)]).serving() as expert,
            start_services(Path(home), expert, {}) as (processes, _),
            connect(processes["planner"].address) as channel,
        ):
            planner = PlannerServiceStub(channel)
            await _plan(planner, LONG_REQUESTS["one word"](MAX_REQUEST_BYTES))  # starts the process for long requests
            for kind, make in LONG_REQUESTS.items():
                before = _cpu_seconds(processes["planner"].pid)
                await _plan(planner, make(MAX_REQUEST_BYTES))
                taken[kind] = _cpu_seconds(processes["planner"].pid) - before
    slowest = max(taken, key=lambda kind: taken[kind])
    note = f"CPU time of the planner's processes for a request of 1 MB; slowest of {len(taken)} kinds: {slowest}"
    return Row(name, round(taken[slowest], 2), "s", LONGEST_CPU_SECONDS, note=note)


async def _plan(planner: "PlannerServiceAsyncStub", text: str) -> None:
    request = PlanRequest(conversation=[Turn(role=ROLE_USER, text=text)])
    async for _ in planner.Plan(request, timeout=TIMEOUT_SECONDS, wait_for_ready=True):
        pass


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children, including children that have ended."""
    children = (stat for _, stat in all_stats() if parent_id(stat) == pid)
    return sum(cpu_seconds(stat, ended=True) for stat in (process_stat(pid), *children))


def _weights() -> Row:
    megabytes = Path(weights.__file__).with_suffix(".npz").stat().st_size / 1e6
    return Row("plan.weights_mb", round(megabytes, 2), "MB", WEIGHTS_MB, note="weights of the embedded planner")
