"""What runs cost as more are under way at once, up to a thousand, each with an expert that takes two seconds."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS
from tests.bench.curves import Curve, Measured
from tests.bench.load import Client, calling, supplied
from tests.bench.processes import Stage, staged
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script

WAVES = {1: 3, 10: 4, 100: 2, 1_000: 2}
"""How often so many are asked for at once."""
EXPERT_SECONDS = 2.0
EXPONENT = 1.1
FEWEST = 10
"""Processor time is counted in ticks of ten milliseconds: what fewer take cannot be told."""
GROWTH_KB = 200
"""Of the orchestrator, for a run under way."""
ROOM = "2000"
"""Runs, and calls of experts, that the orchestrator has under way at most."""


@dataclass(frozen=True)
class Wave:
    """Runs asked for at once."""

    seconds: Sequence[float]
    """Of each run, beyond its expert's."""
    wall: float
    cpu: float
    """Of the orchestrator, in milliseconds, for all of them."""
    resident: float
    """Of it while they were under way, in MB."""


async def rows() -> list[Measured]:
    with TemporaryDirectory() as home:
        async with (
            staged(Path(home), max_runs=ROOM, calls_at_once=ROOM, calls_per_expert=ROOM) as stage,
            calling(stage.orchestrator.address) as client,
        ):
            before, idle = await stage.orchestrator.resident_mb(), await _idle(stage)
            waves = {count: await _waves(count, stage, client) for count in WAVES}
    cpu = Curve(
        "scale.runs_cpu",
        "Runs at once",
        "runs at once",
        "ms of the orchestrator's processor for all",
        {"runs": [(count, wave.cpu - idle * wave.wall) for count, wave in waves.items() if count >= FEWEST]},
    )
    slowed = Curve(
        "scale.runs_latency",
        "What a run takes beyond its expert",
        "runs at once",
        "ms, median",
        {"run": [(count, 1000 * median(wave.seconds)) for count, wave in waves.items()]},
        fitted=False,
    )
    most = max(waves)
    grown = 1000 * (waves[most].resident - before) / most
    note = f"{most:,} at once; the orchestrator had {before:.0f} MB, and {waves[most].resident:.0f} MB meanwhile"
    return [
        *(_rate(count, wave) for count, wave in waves.items()),
        *cpu.exponents(EXPONENT),
        Row("scale.runs_kb_each", round(grown), "kB", GROWTH_KB, note=note),
        cpu,
        slowed,
    ]


def _rate(count: int, wave: Wave) -> Row:
    beyond = f"a run takes {1000 * median(wave.seconds):.0f} ms beyond its expert's {EXPERT_SECONDS:g} s"
    note = f"{count:,} at once, {NAMED}; {beyond}; the orchestrator took {wave.cpu:.0f} ms of a processor"
    return Row(f"scale.runs_{count}_per_s", median([count / wave.wall]), "/s", note=note)


async def _waves(count: int, stage: Stage, client: Client) -> Wave:
    """The median of some, after one that is not looked at."""
    waves = [await _wave(count, stage, client) for _ in range(1 + WAVES[count])][1:]
    beyond = [seconds for wave in waves for seconds in wave.seconds]
    wall, cpu = median([wave.wall for wave in waves]), median([wave.cpu for wave in waves])
    return Wave(beyond, wall, cpu, max(wave.resident for wave in waves))


async def _idle(stage: Stage) -> float:
    """Milliseconds that the orchestrator takes of a processor in a second in which nobody asks for anything."""
    used = stage.orchestrator.cpu_seconds()
    await asyncio.sleep(EXPERT_SECONDS)
    return 1000 * (stage.orchestrator.cpu_seconds() - used) / EXPERT_SECONDS


async def _wave(count: int, stage: Stage, client: Client) -> Wave:
    request = supplied(Script("single", 1, expert=EXPERT_SECONDS), RUN_MODE_RESULTS)
    used, begun = stage.orchestrator.cpu_seconds(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(client.run(request)) for _ in range(count)]
        await asyncio.wait(runs, timeout=EXPERT_SECONDS / 2)
        resident = await stage.orchestrator.resident_mb()
    wall, cpu = time.perf_counter() - begun, 1000 * (stage.orchestrator.cpu_seconds() - used)
    return Wave([run.result() - EXPERT_SECONDS for run in runs], wall, cpu, resident)
