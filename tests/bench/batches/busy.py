"""Utilization of a model by a batch, and the speed of a repeated batch.

The reference calls the same expert directly, with as many background calls as it accepts at once; batch and reference
alternate, so that a slow machine affects both. Further figures are the rate of background calls over that of
interactive ones, and the share of the batch's time in which the model is busy, which does not depend on the machine.
"""

import asyncio
import os
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from experts.host.batch_composer import INTERACTIVE_IDLE_SECONDS
from protos.hugginggpt.v1.batch_pb2 import NewItem
from protos.hugginggpt.v1.gateway_pb2 import GetRunRequest
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import TASK_STATE_REUSED
from tests.bench.batches.client import batch_client, machine_load, seconds
from tests.bench.dense.tasks import TASK
from tests.bench.expert_callers import ExpertCaller, open_channel
from tests.bench.host import CALLERS, ONE_CORE
from tests.bench.load import per_second
from tests.bench.processes import service, start_testbed
from tests.bench.rows import Row
from tests.support.batches import OrchestratorClient, note, step

ITEMS, ROUNDS = 256, 5
BACKGROUND_CALLS = CALLERS * 3 // 4
"""Background calls that the expert accepts at once; it accepts CALLERS interactive ones."""
PLAN = Plan(tasks=[step(1, TASK, model="dense")])


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    with TemporaryDirectory() as home:
        async with (
            service("tests.bench.dense", "EXPERT", Path(home)) as expert,
            service("services.selector", "SELECTOR", Path(home), experts=expert.address) as selector,
            start_testbed(Path(home), selector=selector.address) as testbed,
            batch_client(testbed.orchestrator.address) as client,
            open_channel(expert.address) as channel,
        ):
            interactive = ExpertCaller(channel, "dense", task=TASK)
            await interactive.run_sequentially(10)
            await asyncio.sleep(INTERACTIVE_IDLE_SECONDS)  # until then background batches are kept small
            background = ExpertCaller(channel, "dense", task=TASK, background=True)
            measured, rate = await _compared(client, background)
            reference = await per_second(interactive.call, callers=CALLERS, count=ITEMS)
    note = f"of {reference:.0f} items/s by {CALLERS} interactive callers of the expert; {machine_load()}"
    return [*measured, Row("batches.background_share", round(rate / reference, 3), "", 0.9, at_least=True, note=note)]


async def _compared(client: OrchestratorClient, caller: ExpertCaller) -> tuple[list[Row], float]:
    """The rows, and the items per second of direct calls."""
    shares, rates, busy, first = list[float](), list[float](), list[float](), 0.0
    for number in range(ROUNDS):
        rates.append(await per_second(caller.call, callers=BACKGROUND_CALLS, count=ITEMS))
        first, model_seconds = await _run(client, _items(number))
        shares.append(ITEMS / first / rates[-1])
        busy.append(model_seconds / first)
    repeated, hits = await _repeat(client)
    direct = statistics.median(rates)
    share = (
        f"of {direct:.0f} items/s by {BACKGROUND_CALLS} direct callers of the expert; median of {ROUNDS}; "
        f"{machine_load()}"
    )
    utilization = f"of the time from the batch's creation to its end; median of {ROUNDS}"
    speed = f"{first:.1f} s the first time, {repeated:.1f} s when repeated"
    return [
        Row("batches.throughput_share", round(statistics.median(shares), 3), "", 0.9, at_least=True, note=share),
        Row("batches.model_busy", round(statistics.median(busy), 3), "", 0.9, at_least=True, note=utilization),
        Row("batches.memo_hits", round(hits, 3), "", 0.95, at_least=True, note=f"of {ITEMS} items, all repeated"),
        Row("batches.again_speedup", round(first / repeated, 1), "x", 5, at_least=True, note=speed),
    ], direct


async def _run(client: OrchestratorClient, items: list[NewItem]) -> tuple[float, float]:
    """Seconds of a batch, and seconds in which its model was busy."""
    batch = await client.start(items, plan=PLAN)
    taken = seconds(await client.ended(batch.batch_id))
    return taken, sum(item.usage.busy.ToNanoseconds() for item in await client.items(batch.batch_id)) / 1e9


async def _repeat(client: OrchestratorClient) -> tuple[float, float]:
    """Repeats the last batch; returns its seconds, and the share of its items whose results were reused."""
    batch = await client.start(_items(ROUNDS - 1), plan=PLAN)
    taken = seconds(await client.ended(batch.batch_id))
    reused = 0
    for item in await client.items(batch.batch_id):
        run = await client.stub.GetRun(GetRunRequest(run_id=item.run_id), **client.call_options)
        reused += run.tasks[0].state == TASK_STATE_REUSED
    return taken, reused / ITEMS


def _items(number: int) -> list[NewItem]:
    return [note(f"note {number}.{index}") for index in range(ITEMS)]
