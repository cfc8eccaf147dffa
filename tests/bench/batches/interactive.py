"""Waiting time of interactive runs in the orchestrator during a batch, compared with an idle orchestrator."""

import asyncio
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS
from protos.hugginggpt.v1.task_pb2 import Task
from tests.bench.batches.client import batch_client, machine_load
from tests.bench.processes import start_testbed
from tests.bench.rows import Row
from tests.bench.shapes import INPUTS, TASK
from tests.support.batches import OrchestratorClient, given, note, notes

ITEMS, ROUNDS, RUNS = 20_000, 5, 30
PAUSE_SECONDS = 0.02
WARM_SECONDS = 1.5
"""Time that the batch runs before the interactive runs start."""
GROWTH = 1.2
PLAN = Plan(tasks=[Task(id=1, task=TASK, arguments={INPUTS[0]: given("note")}, pinned_model="0")])


async def rows() -> list[Row]:
    with TemporaryDirectory() as home:
        async with start_testbed(Path(home)) as testbed, batch_client(testbed.orchestrator.address) as client:
            await _waits(client)
            alone, during = list[float](), list[float]()
            batch = await client.start(notes(ITEMS), plan=PLAN, bypass_memo=True)
            for _ in range(ROUNDS):
                await asyncio.sleep(WARM_SECONDS)
                during += await _waits(client)
                await client.cancel(batch.batch_id)
                await client.ended(batch.batch_id)
                alone += await _waits(client)
                await client.resume(batch.batch_id)
            await client.cancel(batch.batch_id)
            await client.ended(batch.batch_id)
    loaded, idle = statistics.median(during), statistics.median(alone)
    about = f"median {loaded * 1e3:.1f} ms during a batch of no-op items, {idle * 1e3:.1f} ms without; {machine_load()}"
    return [Row("batches.interactive_wait", round(loaded / idle, 2), "x", GROWTH, note=about)]


async def _waits(client: OrchestratorClient) -> list[float]:
    """Waiting seconds of interactive runs, made one after the other."""
    waits = []
    for _ in range(RUNS):
        item = note(f"interactive {time.perf_counter()}")
        waits.append(_wait(await client.run(plan=PLAN, inputs=item.inputs, mode=RUN_MODE_RESULTS)))
        await asyncio.sleep(PAUSE_SECONDS)
    return waits


def _wait(events: list[RunEvent]) -> float:
    """Seconds of a run of one task without the time of its expert."""
    at = {event.WhichOneof("event"): event.time.ToNanoseconds() / 1e9 for event in events}
    return at["task_started"] - at["run_accepted"] + at["run_ended"] - at["task_ended"]
