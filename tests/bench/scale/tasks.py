"""Cost of a run as its plan grows to a thousand tasks, and memory growth over many runs."""

from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS
from tests.bench.curves import Curve, Measured, Point
from tests.bench.load import Client, connected_client, per_second, supplied_run
from tests.bench.processes import Testbed, start_testbed
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script

SHAPES = ("chain", "wide")
REPEATS = {1: 50, 10: 20, 100: 7, 1_000: 3}
SLOPE = 1.5
"""Target: marginal cost of a task in the largest plans over that in the smallest."""
EXPONENT = 1.1

CALLERS = 64
FEW_RUNS, MANY_RUNS = 1_000, 10_000
GROWTH_MB = 10


async def rows() -> list[Measured]:
    """Figures of plans by size, and of memory after many runs."""
    with TemporaryDirectory() as home:
        async with start_testbed(Path(home)) as testbed, connected_client(testbed.orchestrator.address) as client:
            taken = {shape: [await _taken(shape, size, client) for size in REPEATS] for shape in SHAPES}
    curve = Curve("scale.tasks", "A run by the tasks of its plan", "no-op tasks", "ms", taken)
    with TemporaryDirectory() as home:
        async with start_testbed(Path(home)) as testbed, connected_client(testbed.orchestrator.address) as client:
            memory = await _memory(testbed, client)
    each = [row for shape, points in taken.items() for row in _each(shape, points)]
    return [*each, *curve.exponents(EXPONENT), memory, curve]


async def _taken(shape: str, size: int, client: Client) -> Point:
    """Median milliseconds of a run."""
    request = supplied_run(Script(shape, size), RUN_MODE_RESULTS)
    await client.run(request)
    return size, 1000 * median([await client.run(request) for _ in range(REPEATS[size])], digits=6)


def _each(shape: str, points: list[Point]) -> list[Row]:
    _, (few, short), (some, middle), (many, long) = points
    more, less = (long - middle) / (many - some), (middle - short) / (some - few)
    note = f"a task above {some:,} takes {more:.2f} ms, one above {few} {less:.2f} ms"
    return [
        *(
            Row(f"growth.{shape}_{size}_ms_per_task", round(ms / size, 2), "ms", note=f"{shape}, no-op tasks, {NAMED}")
            for size, ms in points
        ),
        Row(f"growth.{shape}_slope", round(more / less, 2), "x", SLOPE, note=note),
    ]


async def _memory(testbed: Testbed, client: Client) -> Row:
    request = supplied_run(Script("single", 1), RUN_MODE_RESULTS)
    await per_second(lambda: client.run(request), callers=CALLERS, count=FEW_RUNS)
    few = await testbed.orchestrator.resident_mb()
    await per_second(lambda: client.run(request), callers=CALLERS, count=MANY_RUNS - FEW_RUNS)
    many = await testbed.orchestrator.resident_mb()
    note = f"runs of one task, {NAMED}; {few:.0f} MB after {FEW_RUNS:,} runs, {many:.0f} MB after {MANY_RUNS:,}"
    return Row("growth.memory_mb", round(many - few, 1), "MB", GROWTH_MB, note=note)
