"""Batches: cost per item, utilization of a model, and effect on interactive runs; notes give the machine's load."""

from tests.bench.batches import busy, folder, interactive, small
from tests.bench.rows import Row


async def rows() -> list[Row]:
    return [*await small.rows(), *await folder.rows(), *await busy.rows(), *await interactive.rows()]
