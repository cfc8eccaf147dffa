"""`make bench`: measures, prints a table, writes out/bench.json.

Named sections, as in `python -m tests.bench makespan`, are measured alone and only shown; --help lists them.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from services.runtime import telemetry
from tests.bench import (
    doors,
    gpu,
    growth,
    hops,
    host,
    journal,
    makespan,
    replicas,
    runs,
    takeover,
    throughput,
    torch_models,
    transfers,
)
from tests.bench.batches import measuring as batches
from tests.bench.house import standing
from tests.bench.processes import service
from tests.bench.rivals import measuring as rivals
from tests.bench.rows import Row, show, write

OUT = Path("out/bench.json")

MEMORY = {
    "plan.rss_mb": ("services.planner", "PLANNER"),
    "run.rss_mb": ("services.orchestrator", "ORCHESTRATOR"),
    "run.selector_rss_mb": ("services.selector", "SELECTOR"),
    "run.responder_rss_mb": ("services.responder", "RESPONDER"),
    "gateway.rss_mb": ("gateway", "GATEWAY"),
}


async def cluster() -> list[Row]:
    """How soon the house stands."""
    async with standing(experts="lite") as house:
        return [
            Row("cluster.house_ready_s", round(house.ready_seconds, 2), "s", 5, note="python -m services, lite warm")
        ]


async def whole() -> list[Row]:
    """Runs through all of the house."""
    async with standing(experts="") as house:
        return await runs.rows(house)


async def memory() -> list[Row]:
    """Resident memory of each light service started alone."""
    measured = []
    for name, (module, prefix) in MEMORY.items():
        with TemporaryDirectory() as home:
            async with service(module, prefix, Path(home)) as running:
                resident = round(await running.resident_mb())
        measured.append(Row(name, resident, "MB", 150, note=f"python -m {module}, just started"))
    return measured


SECTIONS: dict[str, Callable[[], Awaitable[list[Row]]]] = {
    "cluster": cluster,
    "runs": whole,
    "gateway": doors.rows,
    "makespan": makespan.rows,
    "throughput": throughput.rows,
    "hops": hops.rows,
    "growth": growth.rows,
    "batches": batches.rows,
    "journal": journal.rows,
    "host": host.rows,
    "torch": torch_models.rows,
    "gpu": gpu.rows,
    "rivals": rivals.rows,
    "takeover": takeover.rows,
    "replicas": replicas.rows,
    "bytes": transfers.rows,
    "memory": memory,
}


async def main(sections: list[str]) -> None:
    telemetry.setup("bench", level="WARNING")
    rows = []
    for name in sections or SECTIONS:
        print(f"measuring {name} …", file=sys.stderr)
        rows += await SECTIONS[name]()
    show(rows)
    if not sections:
        write(rows, OUT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measures; prints a table.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all by default")
    asyncio.run(main(parser.parse_args().sections))
