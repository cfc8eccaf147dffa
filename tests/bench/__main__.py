"""`make bench`: measures, prints a table, writes out/bench.json."""

import asyncio
from pathlib import Path

from services.runtime import telemetry
from tests.bench import runs
from tests.bench.house import alone, resident_mb, standing
from tests.bench.rows import Row, show, write

OUT = Path("out/bench.json")

MEMORY = {
    "plan.rss_mb": ("services.planner", "PLANNER"),
    "run.rss_mb": ("services.orchestrator", "ORCHESTRATOR"),
    "run.selector_rss_mb": ("services.selector", "SELECTOR"),
    "run.responder_rss_mb": ("services.responder", "RESPONDER"),
    "gateway.rss_mb": ("gateway", "GATEWAY"),
}


async def memory() -> list[Row]:
    """Resident memory of each light service started alone."""
    measured = []
    for name, (module, prefix) in MEMORY.items():
        async with alone(module, prefix) as pid:
            measured.append(
                Row(name, round(await resident_mb(pid)), "MB", 150, note=f"python -m {module}, just started")
            )
    return measured


async def main() -> None:
    telemetry.setup("bench", level="WARNING")
    async with standing(experts="lite") as house:
        rows = [
            Row("cluster.house_ready_s", round(house.ready_seconds, 2), "s", 5, note="python -m services, lite warm")
        ]
    async with standing(experts="") as house:
        rows += await runs.rows(house)
    rows += await memory()
    show(rows)
    write(rows, OUT)


asyncio.run(main())
