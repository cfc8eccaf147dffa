"""Cost of a selection and of a plan as the catalogue grows to ten thousand models, all for the requested task."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.internal.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.internal.v1.selector_pb2 import SelectRequest, WatchCatalogueRequest
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.run_pb2 import ROLE_USER, Turn
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from services.common.channel import connect
from tests.bench.curves import Curve, Measured
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.local_stack import TASK
from tests.bench.processes import Running, service
from tests.bench.rows import Row, median
from tests.fakes import FakeExpert, card

SIZES = (10, 100, 1_000, 10_000)
CALLS = 300
CHOICE, PLAN = 0.5, 0.1
"""Targets: exponents of growth with the number of models."""
REQUEST = "Summarize: one two three."
DESCRIPTION = "A model that says in few words what a long text says in many, in English and {} other languages."


@dataclass(frozen=True)
class Cost:
    """Cost of one call.

    Attributes:
        choice_cpu: CPU milliseconds of the selector for a selection.
        choice: milliseconds of a selection for its caller.
        plan_cpu: CPU milliseconds of the planner for a plan.
        resident: memory of the selector in MB.
    """

    choice_cpu: float
    choice: float
    plan_cpu: float
    resident: float


async def rows() -> list[Measured]:
    costs = {size: await _cost(size) for size in SIZES}
    cpu = Curve(
        "scale.models",
        "A request by the models in the catalogue",
        "models of one task",
        "CPU ms",
        {
            "choice": [(size, cost.choice_cpu) for size, cost in costs.items()],
            "plan": [(size, cost.plan_cpu) for size, cost in costs.items()],
        },
    )
    choice, plan = cpu.exponents(CHOICE)
    last = costs[SIZES[-1]]
    many = f"{SIZES[-1]:,} models of one task"
    return [
        Row(
            "scale.choice_10000_ms",
            round(last.choice, 2),
            "ms",
            note=f"a selection among {many}, measured by its caller",
        ),
        choice,
        Row(plan.id, plan.value, "", PLAN, note=plan.note),
        Row("scale.selector_10000_mb", round(last.resident), "MB", note=f"resident, {many}"),
        cpu,
    ]


async def _cost(size: int) -> Cost:
    cards = [card(f"model-{number}", TASK, DESCRIPTION.format(number), likes=number) for number in range(size)]
    async with FakeExpert("many", cards).serving() as address:
        with TemporaryDirectory() as home:
            async with (
                service("services.selector", "SELECTOR", Path(home), experts=address) as selector,
                service("services.planner", "PLANNER", Path(home), selector=selector.address) as planner,
            ):
                return await _measure(selector, planner)


async def _measure(selector: Running, planner: Running) -> Cost:
    async with connect(selector.address) as selector_channel, connect(planner.address) as planner_channel:
        selector_stub, planner_stub = SelectorServiceStub(selector_channel), PlannerServiceStub(planner_channel)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for _ in selector_stub.WatchCatalogue(WatchCatalogueRequest()):
                if (await selector_stub.Select(SELECT)).candidates:
                    break

        async def plan() -> None:
            async for _ in planner_stub.Plan(PLAN_REQUEST, timeout=TIMEOUT_SECONDS, wait_for_ready=True):
                pass

        choice_cpu, choice = await _calls(lambda: selector_stub.Select(SELECT, timeout=TIMEOUT_SECONDS), selector)
        plan_cpu, _ = await _calls(plan, planner)
        return Cost(choice_cpu, choice, plan_cpu, await selector.resident_mb())


SELECT = SelectRequest(
    task=Task(id=1, task=TASK, arguments={"text": Argument(value=Value(text="one two three"))}), request=REQUEST
)
PLAN_REQUEST = PlanRequest(conversation=[Turn(role=ROLE_USER, text=REQUEST)])


async def _calls(call: Callable[[], Awaitable[object]], process: Running) -> tuple[float, float]:
    """CPU milliseconds of the process per call, and median milliseconds of a call, after one for warm-up."""
    await call()
    used, taken = process.cpu_seconds(), list[float]()
    for _ in range(CALLS):
        started = time.perf_counter()
        await call()
        taken.append(1000 * (time.perf_counter() - started))
    return 1000 * (process.cpu_seconds() - used) / CALLS, median(taken)
