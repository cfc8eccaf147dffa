"""Resident memory of each light service started alone, and of a planner that has planned; what its weights weigh."""

from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.v1.types_pb2 import ROLE_USER, Turn
from services.planner.embedded.learned import weights
from services.runtime.channel import connect
from tests.bench.house import TASK
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.processes import service
from tests.bench.rooms import rooms
from tests.bench.rows import Row
from tests.fakes import FakeExpert, card

MOST_MB, WORKED_MB, WEIGHTS_MB = 150, 250, 10
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
    return [*fresh, await _worked(), _weights()]


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


def _weights() -> Row:
    megabytes = Path(weights.__file__).with_suffix(".npz").stat().st_size / 1e6
    return Row("plan.weights_mb", round(megabytes, 2), "MB", WEIGHTS_MB, note="what the planner without an LLM learned")
