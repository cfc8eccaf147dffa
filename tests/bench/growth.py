"""Whether large plans cost more per task than small ones, and whether many runs leave something behind."""

from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.types_pb2 import RUN_MODE_RESULTS
from tests.bench.load import Client, calling, per_second, supplied
from tests.bench.processes import Stage, staged
from tests.bench.rows import Row, median
from tests.bench.shapes import Script

SIZES = (10, 100, 1_000)
REPEATS = {10: 20, 100: 7, 1_000: 3}
SLOPE = 1.5
"""How much more a task may cost in the largest plans than in the smallest; what a run itself costs is left out."""

CALLERS = 64
FEW_RUNS, MANY_RUNS = 1_000, 10_000
GROWTH_MB = 10


async def rows() -> list[Row]:
    """Figures of plans that grow, and of runs that add up."""
    with TemporaryDirectory() as home:
        async with staged(Path(home)) as stage, calling(stage.orchestrator.address) as client:
            measured = [row for shape in ("chain", "wide") for row in await _per_task(shape, client)]
    with TemporaryDirectory() as home:
        async with staged(Path(home)) as stage, calling(stage.orchestrator.address) as client:
            return [*measured, await _memory(stage, client)]


async def _per_task(shape: str, client: Client) -> list[Row]:
    taken = {}
    for size in SIZES:
        request = supplied(Script(shape, size), RUN_MODE_RESULTS)
        await client.run(request)
        taken[size] = 1000 * median([await client.run(request) for _ in range(REPEATS[size])], digits=6)
    small, middle, large = SIZES
    more = (taken[large] - taken[middle]) / (large - middle)
    less = (taken[middle] - taken[small]) / (middle - small)
    each = [
        Row(f"growth.{shape}_{size}_ms_per_task", round(taken[size] / size, 2), "ms", note=f"{shape}, no-op tasks")
        for size in SIZES
    ]
    note = f"a task beyond {middle} takes {more:.2f} ms, one beyond {small} {less:.2f} ms"
    return [*each, Row(f"growth.{shape}_slope", round(more / less, 2), "x", SLOPE, note=note)]


async def _memory(stage: Stage, client: Client) -> Row:
    request = supplied(Script("single", 1), RUN_MODE_RESULTS)
    await per_second(lambda: client.run(request), callers=CALLERS, count=FEW_RUNS)
    few = await stage.orchestrator.resident_mb()
    await per_second(lambda: client.run(request), callers=CALLERS, count=MANY_RUNS - FEW_RUNS)
    many = await stage.orchestrator.resident_mb()
    note = f"{few:.0f} MB after {FEW_RUNS:,} runs, {many:.0f} MB after {MANY_RUNS:,}"
    return Row("growth.memory_mb", round(many - few, 1), "MB", GROWTH_MB, note=note)
