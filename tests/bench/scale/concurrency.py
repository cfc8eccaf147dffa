"""Cost of up to a thousand concurrent runs, each with an expert that takes two seconds."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS
from tests.bench.curves import Curve, Measured
from tests.bench.load import Client, connected_client, supplied_run
from tests.bench.processes import Testbed, start_testbed
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script

WAVES = {1: 3, 10: 4, 100: 2, 1_000: 2}
"""Number of waves, by number of runs in a wave."""
EXPERT_SECONDS = 2.0
EXPONENT = 1.1
FEWEST = 10
"""CPU time is counted in ticks of ten milliseconds, which is too coarse for fewer runs."""
GROWTH_KB = 200
"""Target: memory of the orchestrator per active run."""
LIMIT = "2000"
"""Limit of the orchestrator's active runs and expert calls."""


@dataclass(frozen=True)
class Wave:
    """Runs started at once.

    Attributes:
        seconds: of each run, less its expert's.
        wall: seconds until all have ended.
        cpu: CPU milliseconds of the orchestrator for all of them.
        resident: MB of the orchestrator while they are active.
    """

    seconds: Sequence[float]
    wall: float
    cpu: float
    resident: float


async def rows() -> list[Measured]:
    with TemporaryDirectory() as home:
        async with (
            start_testbed(Path(home), max_runs=LIMIT, calls_at_once=LIMIT, calls_per_expert=LIMIT) as testbed,
            connected_client(testbed.orchestrator.address) as client,
        ):
            before, idle = await testbed.orchestrator.resident_mb(), await _idle(testbed)
            waves = {count: await _waves(count, testbed, client) for count in WAVES}
    cpu = Curve(
        "scale.runs_cpu",
        "Runs at once",
        "runs at once",
        "CPU ms of the orchestrator for all",
        {"runs": [(count, wave.cpu - idle * wave.wall) for count, wave in waves.items() if count >= FEWEST]},
    )
    slowed = Curve(
        "scale.runs_latency",
        "Overhead of a run over its expert",
        "runs at once",
        "ms, median",
        {"run": [(count, 1000 * median(wave.seconds)) for count, wave in waves.items()]},
        fitted=False,
    )
    most = max(waves)
    grown = 1000 * (waves[most].resident - before) / most
    note = f"{most:,} at once; the orchestrator had {before:.0f} MB before and {waves[most].resident:.0f} MB during"
    return [
        *(_rate(count, wave) for count, wave in waves.items()),
        *cpu.exponents(EXPONENT),
        Row("scale.runs_kb_each", round(grown), "kB", GROWTH_KB, note=note),
        cpu,
        slowed,
    ]


def _rate(count: int, wave: Wave) -> Row:
    overhead = f"a run takes {1000 * median(wave.seconds):.0f} ms in addition to its expert's {EXPERT_SECONDS:g} s"
    note = f"{count:,} at once, {NAMED}; {overhead}; {wave.cpu:.0f} ms of CPU time of the orchestrator"
    return Row(f"scale.runs_{count}_per_s", median([count / wave.wall]), "/s", note=note)


async def _waves(count: int, testbed: Testbed, client: Client) -> Wave:
    """Medians of several waves, after one for warm-up."""
    waves = [await _wave(count, testbed, client) for _ in range(1 + WAVES[count])][1:]
    overheads = [seconds for wave in waves for seconds in wave.seconds]
    wall, cpu = median([wave.wall for wave in waves]), median([wave.cpu for wave in waves])
    return Wave(overheads, wall, cpu, max(wave.resident for wave in waves))


async def _idle(testbed: Testbed) -> float:
    """CPU milliseconds of the idle orchestrator per second."""
    used = testbed.orchestrator.cpu_seconds()
    await asyncio.sleep(EXPERT_SECONDS)
    return 1000 * (testbed.orchestrator.cpu_seconds() - used) / EXPERT_SECONDS


async def _wave(count: int, testbed: Testbed, client: Client) -> Wave:
    request = supplied_run(Script("single", 1, expert=EXPERT_SECONDS), RUN_MODE_RESULTS)
    used, started = testbed.orchestrator.cpu_seconds(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(client.run(request)) for _ in range(count)]
        await asyncio.wait(runs, timeout=EXPERT_SECONDS / 2)
        resident = await testbed.orchestrator.resident_mb()
    wall, cpu = time.perf_counter() - started, 1000 * (testbed.orchestrator.cpu_seconds() - used)
    return Wave([run.result() - EXPERT_SECONDS for run in runs], wall, cpu, resident)
