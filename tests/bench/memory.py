"""Resident memory of each light service started alone."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.processes import service
from tests.bench.rows import Row

MOST_MB = 150
SERVICES = {
    "plan.rss_mb": ("services.planner", "PLANNER"),
    "run.rss_mb": ("services.orchestrator", "ORCHESTRATOR"),
    "run.selector_rss_mb": ("services.selector", "SELECTOR"),
    "run.responder_rss_mb": ("services.responder", "RESPONDER"),
    "gateway.rss_mb": ("gateway", "GATEWAY"),
}


async def rows() -> list[Row]:
    return [await _resident(name, module, prefix) for name, (module, prefix) in SERVICES.items()]


async def _resident(name: str, module: str, prefix: str) -> Row:
    with TemporaryDirectory() as home:
        async with service(module, prefix, Path(home)) as running:
            resident = round(await running.resident_mb())
    return Row(name, resident, "MB", MOST_MB, note=f"python -m {module}, just started")
