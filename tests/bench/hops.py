"""What each service of a house takes of a processor for one run, as in a cluster: a process each, beside PostgreSQL.

The request is planned, its model chosen and its answer composed without an LLM; the expert does nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.batches.client import loaded
from tests.bench.rows import Row, gap, median
from tests.bench.separate_processes import House, standing
from tests.bench.service_processes import ROOMS
from tests.support import postgres

RUNS, ROUNDS, CALLERS = 200, 5, 64


async def rows() -> list[Row]:
    """Figures of a run of one task through every service; none where PostgreSQL is not installed."""
    try:
        with postgres.standing() as url:
            turns = await _turns(url)
    except RuntimeError as error:
        return [gap(f"hops.{room}_{unit.lower()}", unit, None, str(error)) for unit in ("ms", "MB") for room in ROOMS]
    note = f"processor time for a run of one task, {CALLERS} callers; {loaded()}"
    resident = f"resident memory after {RUNS} runs of {CALLERS} callers, again and again"
    taken = {name: median([turn[name] for turn in turns]) for name in turns[0]}
    return [
        *(Row(f"hops.{room}_ms", taken[room], "ms", note=note) for room in ROOMS),
        Row("hops.postgres_ms", taken["postgres"], "ms", note=f"likewise; {taken['commits']:g} commits a run"),
        Row("hops.kept_kb", taken["kept_kb"], "kB", note="what the database grows by for a run, indexes included"),
        *(Row(f"hops.{room}_mb", round(taken[f"{room}_mb"]), "MB", note=resident) for room in ROOMS),
    ]


async def _turns(url: str) -> list[Mapping[str, float]]:
    """What a run takes, by name."""
    with TemporaryDirectory() as home:
        async with standing(Path(home), url) as house:
            turns = [await _spent(house) for _ in range(ROUNDS + 1)]
    return turns[1:]


async def _spent(house: House) -> Mapping[str, float]:
    """What a run took of each process and of the database, and the MB that each has then."""
    spent = await house.spent(callers=CALLERS, runs=RUNS)
    return spent | {f"{room}_mb": await running.resident_mb() for room, running in house.rooms.items()}
