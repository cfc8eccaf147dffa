"""A batch whose model takes time: how busy it keeps that, and what it costs to ask the same again.

What it is compared with is the same expert, called directly by as many callers as it takes at a time of those for whom
nobody waits in person; both take turns, so that a slow minute of the machine is both's. That they get as much as people
do is a figure too, and how much of the batch's time the model is at it, which a busy machine does not change.
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
from tests.bench.batches.client import asking, loaded, seconds
from tests.bench.dense.tasks import TASK
from tests.bench.expert_callers import Asker, reaching
from tests.bench.host import CALLERS, ONE_CORE
from tests.bench.load import per_second
from tests.bench.processes import service, staged
from tests.bench.rows import Row
from tests.support.batches import Asking, note, step

ITEMS, ROUNDS = 256, 5
PLACES = CALLERS * 3 // 4
"""Calls that the expert takes at a time, of people CALLERS."""
PLAN = Plan(tasks=[step(1, TASK, model="dense")])


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    with TemporaryDirectory() as home:
        async with (
            service("tests.bench.dense", "EXPERT", Path(home)) as expert,
            service("services.selector", "SELECTOR", Path(home), experts=expert.address) as selector,
            staged(Path(home), selector=selector.address) as stage,
            asking(stage.orchestrator.address) as asked,
            reaching(expert.address) as channel,
        ):
            people = Asker(channel, "dense", task=TASK)
            await people.in_turn(10)
            await asyncio.sleep(INTERACTIVE_IDLE_SECONDS)  # until then the expert keeps batches small, for people
            background = Asker(channel, "dense", task=TASK, background=True)
            measured, rate = await _compared(asked, background)
            paced = await per_second(people.ask, callers=CALLERS, count=ITEMS)
    note = f"of {paced:.0f} items/s of the expert called directly by {CALLERS} for people; {loaded()}"
    return [*measured, Row("batches.background_share", round(rate / paced, 3), "", 0.9, at_least=True, note=note)]


async def _compared(asked: Asking, asker: Asker) -> tuple[list[Row], float]:
    """The figures, and how many items a second the expert does when it is called directly."""
    shares, rates, busy, first = list[float](), list[float](), list[float](), 0.0
    for number in range(ROUNDS):
        rates.append(await per_second(asker.ask, callers=PLACES, count=ITEMS))
        first, at_it = await _through(asked, _items(number))
        shares.append(ITEMS / first / rates[-1])
        busy.append(at_it / first)
    again, hits = await _again(asked)
    direct = statistics.median(rates)
    share = f"of {direct:.0f} items/s of the expert called directly by {PLACES}; median of {ROUNDS}; {loaded()}"
    at = f"of the time from the batch's first word to its end; median of {ROUNDS}"
    speed = f"{first:.1f} s at first, {again:.1f} s again"
    return [
        Row("batches.throughput_share", round(statistics.median(shares), 3), "", 0.9, at_least=True, note=share),
        Row("batches.model_busy", round(statistics.median(busy), 3), "", 0.9, at_least=True, note=at),
        Row("batches.memo_hits", round(hits, 3), "", 0.95, at_least=True, note=f"of {ITEMS} items, all asked again"),
        Row("batches.again_speedup", round(first / again, 1), "x", 5, at_least=True, note=speed),
    ], direct


async def _through(asked: Asking, items: list[NewItem]) -> tuple[float, float]:
    """Seconds of a batch, and those that its model was at it."""
    batch = await asked.start(items, plan=PLAN)
    taken = seconds(await asked.ended(batch.batch_id))
    return taken, sum(item.usage.busy.ToNanoseconds() for item in await asked.items(batch.batch_id)) / 1e9


async def _again(asked: Asking) -> tuple[float, float]:
    """Seconds of the last batch asked for again, and which share of its items was known."""
    batch = await asked.start(_items(ROUNDS - 1), plan=PLAN)
    taken = seconds(await asked.ended(batch.batch_id))
    reused = 0
    for item in await asked.items(batch.batch_id):
        run = await asked.stub.GetRun(GetRunRequest(run_id=item.run_id), **asked.means)
        reused += run.tasks[0].state == TASK_STATE_REUSED
    return taken, reused / ITEMS


def _items(number: int) -> list[NewItem]:
    return [note(f"note {number}.{index}") for index in range(ITEMS)]
