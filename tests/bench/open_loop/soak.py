"""Growth of memory and open files of the services during half an hour of mixed load."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.curves import Curve, Measured
from tests.bench.open_loop.closed_loop import closed_loop_rate
from tests.bench.open_loop.mixed_load import MixedResult, mixed_load
from tests.bench.open_loop.process_monitor import ProcessMonitor, monitored
from tests.bench.rows import Row, gap
from tests.bench.separate_processes import Deployment, start_deployment
from tests.bench.service_processes import SERVICE_NAMES
from tests.support import postgres

SECONDS = float(os.environ.get("SOAK_SECONDS") or (90 if os.environ.get("CI") else 1_800))
SAMPLES = 180
SHARE = 0.4
"""Rate of the load, as a share of the closed-loop rate."""
PERCENT, FILES = 5.0, 8
"""Targets: growth of memory, and of open files, over the second half."""


async def rows() -> list[Measured]:
    """Growth of every service; gaps where PostgreSQL is not installed."""
    try:
        with postgres.running_postgres() as url, TemporaryDirectory() as home:
            async with start_deployment(Path(home), url) as deployment:
                return await _measure(deployment)
    except RuntimeError as error:
        return [gap(f"soak.{name}_growth_percent", "%", PERCENT, str(error)) for name in SERVICE_NAMES]


async def _measure(deployment: Deployment) -> list[Measured]:
    await closed_loop_rate(deployment)
    rate = round(SHARE * await closed_loop_rate(deployment), 1)
    pids = {name: running.pid for name, running in deployment.processes.items()}
    async with monitored(pids, SECONDS / SAMPLES) as monitors:
        result = await mixed_load(deployment.port, rate, SECONDS)
    return [*_growth(monitors, rate), *_files(monitors), _wrong(result), _memory(monitors)]


def _growth(monitors: Mapping[str, ProcessMonitor], rate: float) -> Iterator[Row]:
    for name, monitor in monitors.items():
        note = (
            f"{monitor.megabytes_per_hour:+.1f} MB an hour over the second half of {SECONDS / 60:g} minutes, "
            f"{rate:g} requests a second of all kinds; reference: MB at the end"
        )
        growth, resident = round(monitor.growth_percent, 1), round(monitor.samples[-1].megabytes)
        yield Row(f"soak.{name}_growth_percent", growth, "%", PERCENT, resident, note)


def _files(monitors: Mapping[str, ProcessMonitor]) -> Iterator[Row]:
    most = max(monitors, key=lambda name: monitors[name].files_growth)
    note = f"open files and connections of {most}: last quarter less third quarter; reference: at the end"
    yield Row("soak.files_growth", monitors[most].files_growth, "", FILES, monitors[most].samples[-1].files, note)


def _wrong(result: MixedResult) -> Row:
    requests = ", ".join(f"{kind} {count:,}" for kind, count in result.requests.items())
    causes = ", ".join(f"{count} x {cause}" for cause, count in Counter(result.wrong).most_common(3)) or "none"
    note = f"requests with a wrong result: {causes}; requests: {requests}"
    return Row("soak.wrong", sum(result.wrong.values()), "", 0, note=note)


def _memory(monitors: Mapping[str, ProcessMonitor]) -> Curve:
    return Curve(
        "soak.memory",
        "Memory during a mixed load",
        "time (minutes)",
        "resident memory (MB)",
        {name: _points(monitor) for name, monitor in monitors.items()},
        fitted=False,
    )


def _points(monitor: ProcessMonitor) -> Sequence[tuple[float, float]]:
    return [(60 * usage.hours, usage.megabytes) for usage in monitor.samples]
