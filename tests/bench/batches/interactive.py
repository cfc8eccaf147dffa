"""What people wait in the orchestrator while a batch takes all it can get: the same asked alone, in turns."""

import asyncio
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS
from protos.hugginggpt.v1.task_pb2 import Task
from tests.bench.batches.client import asking, loaded
from tests.bench.processes import staged
from tests.bench.rows import Row
from tests.bench.shapes import INPUTS, TASK
from tests.support.batches import Asking, given, note, notes

ITEMS, ROUNDS, ASKED = 20_000, 5, 30
PAUSE_SECONDS = 0.02
WARM_SECONDS = 1.5
"""How long a batch is at it before people come."""
GROWTH = 1.2
PLAN = Plan(tasks=[Task(id=1, task=TASK, arguments={INPUTS[0]: given("note")}, pinned_model="0")])


async def rows() -> list[Row]:
    with TemporaryDirectory() as home:
        async with staged(Path(home)) as stage, asking(stage.orchestrator.address) as asked:
            await _waits(asked)
            alone, among = list[float](), list[float]()
            batch = await asked.start(notes(ITEMS), plan=PLAN, bypass_memo=True)
            for _ in range(ROUNDS):
                await asyncio.sleep(WARM_SECONDS)
                among += await _waits(asked)
                await asked.cancel(batch.batch_id)
                await asked.ended(batch.batch_id)
                alone += await _waits(asked)
                await asked.resume(batch.batch_id)
            await asked.cancel(batch.batch_id)
            await asked.ended(batch.batch_id)
    one, other = statistics.median(among), statistics.median(alone)
    told = f"median {one * 1e3:.1f} ms among a batch of no-op items, alone {other * 1e3:.1f} ms; {loaded()}"
    return [Row("batches.interactive_wait", round(one / other, 2), "x", GROWTH, note=told)]


async def _waits(asked: Asking) -> list[float]:
    """What runs wait that people begin one after the other."""
    waits = []
    for _ in range(ASKED):
        item = note(f"for a person {time.perf_counter()}")
        waits.append(_waited(await asked.run(plan=PLAN, inputs=item.inputs, mode=RUN_MODE_RESULTS)))
        await asyncio.sleep(PAUSE_SECONDS)
    return waits


def _waited(events: list[RunEvent]) -> float:
    """Seconds of a run of one task that were not its expert's."""
    at = {event.WhichOneof("event"): event.time.ToNanoseconds() / 1e9 for event in events}
    return at["task_started"] - at["run_accepted"] + at["run_ended"] - at["task_ended"]
