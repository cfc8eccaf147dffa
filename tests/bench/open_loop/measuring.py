"""How many runs a second a house takes that come when they come, and what becomes of it when more do."""

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.curves import Measured
from tests.bench.open_loop.closed_loop import RUNS, pace
from tests.bench.open_loop.knee import knee
from tests.bench.open_loop.load_generator import offered
from tests.bench.open_loop.measurement import SEED, SHARES, Measurement, lasting
from tests.bench.open_loop.report import told
from tests.bench.open_loop.samples import Point
from tests.bench.rows import gap
from tests.bench.separate_processes import House, standing
from tests.bench.service_processes import ROOMS
from tests.support import postgres

PAST = (1.5, 2.0, 3.0)
"""Rates, of the knee's."""
GOES = 2
"""So often is each rate up to the knee tried, and the quieter go taken: what else a machine does shows in p99."""


async def rows() -> list[Measured]:
    """Figures of rates; none where PostgreSQL is not installed."""
    try:
        with postgres.standing() as url, TemporaryDirectory() as home:
            async with standing(Path(home), url) as house:
                measured = await _measured(house)
    except RuntimeError as error:
        return [gap("load.knee_runs_per_s", "/s", None, str(error))]
    return told(measured)


async def _measured(house: House) -> Measurement:
    closed, seconds = await _closed(house)
    rising = [await _quieter(house, closed * share) for share in SHARES]
    found = knee(rising)
    past = {times: await _offered(house, found.offered * times) for times in PAST} if found else {}
    return Measurement(closed, seconds, rising, past)


async def _closed(house: House) -> tuple[float, Mapping[str, float]]:
    """Runs a second, and what a run takes; the expert is in this process, as are those who ask."""
    await pace(house)
    before, own = await house.used(), time.process_time()
    rate = await pace(house)
    after, expert = await house.used(), time.process_time() - own
    spent = {room: (after[room] - before[room]) / 1000 / RUNS for room in (*ROOMS, "postgres")}
    return rate, {**spent, "expert": expert / RUNS}


async def _quieter(house: House, rate: float) -> Point:
    goes = [await _offered(house, rate) for _ in range(GOES)]
    return min(goes, key=lambda point: (not point.valid, point.latency(0.99)))


async def _offered(house: House, rate: float) -> Point:
    return await offered(house.port, rate, lasting(rate), SEED)
