"""Runs per second that a deployment sustains with random arrivals, and its goodput above that rate."""

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.curves import Measured
from tests.bench.open_loop.closed_loop import RUNS, closed_loop_rate
from tests.bench.open_loop.knee import knee
from tests.bench.open_loop.load_generator import offered
from tests.bench.open_loop.measurement import SEED, SHARES, Measurement, duration
from tests.bench.open_loop.report import results
from tests.bench.open_loop.samples import Point
from tests.bench.rows import gap
from tests.bench.separate_processes import Deployment, start_deployment
from tests.bench.service_processes import SERVICE_NAMES
from tests.support import postgres

PAST = (1.5, 2.0, 3.0)
"""Rates above the knee, as multiples of it."""
ATTEMPTS = 2
"""Attempts for each rate up to the knee; the better one counts, since other load of the machine raises p99."""


async def rows() -> list[Measured]:
    """Figures and curves of all rates; a gap where PostgreSQL is not installed."""
    try:
        with postgres.running_postgres() as url, TemporaryDirectory() as home:
            async with start_deployment(Path(home), url) as deployment:
                measured = await _measured(deployment)
    except RuntimeError as error:
        return [gap("load.knee_runs_per_s", "/s", None, str(error))]
    return results(measured)


async def _measured(deployment: Deployment) -> Measurement:
    closed, seconds = await _closed(deployment)
    rising = [await _best(deployment, closed * share) for share in SHARES]
    found = knee(rising)
    past = {times: await _offered(deployment, found.offered * times) for times in PAST} if found else {}
    return Measurement(closed, seconds, rising, past)


async def _closed(deployment: Deployment) -> tuple[float, Mapping[str, float]]:
    """Closed-loop rate, and core-seconds per run; the expert and the callers run in this process."""
    await closed_loop_rate(deployment)
    before, own = await deployment.used(), time.process_time()
    rate = await closed_loop_rate(deployment)
    after, expert = await deployment.used(), time.process_time() - own
    spent = {name: (after[name] - before[name]) / 1000 / RUNS for name in (*SERVICE_NAMES, "postgres")}
    return rate, {**spent, "expert": expert / RUNS}


async def _best(deployment: Deployment, rate: float) -> Point:
    attempts = [await _offered(deployment, rate) for _ in range(ATTEMPTS)]
    return min(attempts, key=lambda point: (not point.valid, point.latency(0.99)))


async def _offered(deployment: Deployment, rate: float) -> Point:
    return await offered(deployment.port, rate, duration(rate), SEED)
