"""CPU time of each service and of PostgreSQL per run, deployed as in a cluster: one process per service.

Planning, model selection and the response use no LLM; the expert returns at once.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.batches.client import machine_load
from tests.bench.rows import Row, gap, median
from tests.bench.separate_processes import Deployment, start_deployment
from tests.bench.service_processes import SERVICE_NAMES
from tests.support import postgres

RUNS, ROUNDS, CALLERS = 200, 5, 64


async def rows() -> list[Row]:
    """Figures of runs of one task through every service; gaps where PostgreSQL is not installed."""
    try:
        with postgres.running_postgres() as url:
            rounds = await _rounds(url)
    except RuntimeError as error:
        return [
            gap(f"hops.{name}_{unit.lower()}", unit, None, str(error))
            for unit in ("ms", "MB")
            for name in SERVICE_NAMES
        ]
    note = f"CPU time of a run of one task, {CALLERS} callers; {machine_load()}"
    resident = f"resident memory after rounds of {RUNS} runs by {CALLERS} callers"
    taken = {name: median([values[name] for values in rounds]) for name in rounds[0]}
    return [
        *(Row(f"hops.{name}_ms", taken[name], "ms", note=note) for name in SERVICE_NAMES),
        Row("hops.postgres_ms", taken["postgres"], "ms", note=f"likewise; {taken['commits']:g} commits a run"),
        Row("hops.kept_kb", taken["kept_kb"], "kB", note="growth of the database per run, indexes included"),
        *(Row(f"hops.{name}_mb", round(taken[f"{name}_mb"]), "MB", note=resident) for name in SERVICE_NAMES),
    ]


async def _rounds(url: str) -> list[Mapping[str, float]]:
    """Values per run by name, of each round after a warm-up."""
    with TemporaryDirectory() as home:
        async with start_deployment(Path(home), url) as deployment:
            rounds = [await _spent(deployment) for _ in range(ROUNDS + 1)]
    return rounds[1:]


async def _spent(deployment: Deployment) -> Mapping[str, float]:
    """Values of `Deployment.spent` per run, and the resident MB of each process afterwards."""
    spent = await deployment.spent(callers=CALLERS, runs=RUNS)
    return spent | {f"{name}_mb": await running.resident_mb() for name, running in deployment.processes.items()}
