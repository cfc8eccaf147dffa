"""What a run costs as its plan grows to a thousand tasks, and whether many runs leave something behind."""

from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS
from tests.bench.curves import Curve, Measured, Point
from tests.bench.load import Client, calling, per_second, supplied
from tests.bench.processes import Stage, staged
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script

SHAPES = ("chain", "wide")
REPEATS = {1: 50, 10: 20, 100: 7, 1_000: 3}
SLOPE = 1.5
"""How much more a task may cost in the largest plans than in the smallest; what a run itself costs is left out."""
EXPONENT = 1.1

CALLERS = 64
FEW_RUNS, MANY_RUNS = 1_000, 10_000
GROWTH_MB = 10


async def rows() -> list[Measured]:
    """Figures of plans that grow, and of runs that add up."""
    with TemporaryDirectory() as home:
        async with staged(Path(home)) as stage, calling(stage.orchestrator.address) as client:
            taken = {shape: [await _taken(shape, size, client) for size in REPEATS] for shape in SHAPES}
    curve = Curve("scale.tasks", "A run by the tasks of its plan", "tasks, each of which does nothing", "ms", taken)
    with TemporaryDirectory() as home:
        async with staged(Path(home)) as stage, calling(stage.orchestrator.address) as client:
            memory = await _memory(stage, client)
    each = [row for shape, points in taken.items() for row in _each(shape, points)]
    return [*each, *curve.exponents(EXPONENT), memory, curve]


async def _taken(shape: str, size: int, client: Client) -> Point:
    """Milliseconds of a run."""
    request = supplied(Script(shape, size), RUN_MODE_RESULTS)
    await client.run(request)
    return size, 1000 * median([await client.run(request) for _ in range(REPEATS[size])], digits=6)


def _each(shape: str, points: list[Point]) -> list[Row]:
    _, (few, short), (some, middle), (many, long) = points
    more, less = (long - middle) / (many - some), (middle - short) / (some - few)
    note = f"a task beyond {some:,} takes {more:.2f} ms, one beyond {few} {less:.2f} ms"
    return [
        *(
            Row(f"growth.{shape}_{size}_ms_per_task", round(ms / size, 2), "ms", note=f"{shape}, no-op tasks, {NAMED}")
            for size, ms in points
        ),
        Row(f"growth.{shape}_slope", round(more / less, 2), "x", SLOPE, note=note),
    ]


async def _memory(stage: Stage, client: Client) -> Row:
    request = supplied(Script("single", 1), RUN_MODE_RESULTS)
    await per_second(lambda: client.run(request), callers=CALLERS, count=FEW_RUNS)
    few = await stage.orchestrator.resident_mb()
    await per_second(lambda: client.run(request), callers=CALLERS, count=MANY_RUNS - FEW_RUNS)
    many = await stage.orchestrator.resident_mb()
    note = f"runs of one task, {NAMED}; {few:.0f} MB after {FEW_RUNS:,} runs, {many:.0f} MB after {MANY_RUNS:,}"
    return Row("growth.memory_mb", round(many - few, 1), "MB", GROWTH_MB, note=note)
