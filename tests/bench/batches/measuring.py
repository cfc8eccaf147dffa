"""All figures of batches, in one run on one machine; each note says how loaded that was."""

from tests.bench.batches import busy, interactive, small
from tests.bench.rows import Row


async def rows() -> list[Row]:
    return [*await small.rows(), *await busy.rows(), *await interactive.rows()]
