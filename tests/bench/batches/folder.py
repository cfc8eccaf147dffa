"""Processor time of gateway and orchestrator for each picture of `hugginggpt batch --folder`, with a task of 4 ms."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.batches.client import machine_load
from tests.bench.bulk.arms.work import COLOURS
from tests.bench.bulk.data import copy_pictures, draw_pictures
from tests.bench.bulk.workloads import BY_NAME, FILE_MODULE
from tests.bench.processes import Running, printed, service
from tests.bench.rows import Row, median
from tests.bench.service_processes import start_services

PICTURES, WARM, ROUNDS, CPU_MS = 600, 100, 3, 2.5
MEASURED = ("gateway", "orchestrator")


async def rows() -> list[Row]:
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "plan.json").write_text(json.dumps({"plan": BY_NAME[COLOURS].plan}), "utf-8")
        (home / "pictures").mkdir()
        draw_pictures(home / "pictures", PICTURES + PICTURES // 50)
        async with (
            service(FILE_MODULE, "EXPERT", home) as expert,
            start_services(home, expert.address, {}) as (processes, http),
        ):
            await _run(home, http, "warm", WARM)
            rounds = [await _measured(home, http, processes, str(number)) for number in range(ROUNDS)]
    total = median([sum(used.values()) for used in rounds])
    each = ", ".join(f"{name} {median([used[name] for used in rounds])} ms" for name in MEASURED)
    note = f"{each}; {PICTURES} JPEGs, sent and results saved; median of {ROUNDS}; {machine_load()}"
    return [Row("batches.folder_cpu_per_item_ms", total, "ms", CPU_MS, note=note)]


async def _measured(home: Path, http: str, processes: Mapping[str, Running], name: str) -> Mapping[str, float]:
    """Milliseconds of processor time for each picture, by service."""
    before = {service: processes[service].cpu_seconds() for service in MEASURED}
    await _run(home, http, name, PICTURES)
    return {service: 1000 * (processes[service].cpu_seconds() - before[service]) / PICTURES for service in MEASURED}


async def _run(home: Path, http: str, name: str, count: int) -> None:
    """Runs a batch of pictures that no earlier batch had, so that no result is reused."""
    copy_pictures(home / name, home / "pictures", count, name.encode())
    files = ("--plan", home / "plan.json", "--folder", home / name, "--out", home / f"{name}-out")
    await printed("gateway.cli", "batch", *files, "--url", f"http://{http}", "--json", hide_stderr=True)
