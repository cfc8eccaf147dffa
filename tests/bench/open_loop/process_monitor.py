"""Samples memory and open files of processes at intervals."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.curves import fit


@dataclass(frozen=True)
class Usage:
    """Memory and open files of a process; hours since the start of the monitor."""

    hours: float
    megabytes: float
    files: int


@dataclass(frozen=True)
class ProcessMonitor:
    """Samples of one process, in order of time."""

    pid: int
    samples: list[Usage] = field(default_factory=list)

    @property
    def second_half(self) -> Sequence[Usage]:
        """Samples of the second half of the time, when caches are full."""
        return self.samples[len(self.samples) // 2 :]

    @property
    def megabytes_per_hour(self) -> float:
        return fit([(usage.hours, usage.megabytes) for usage in self.second_half]).slope

    @property
    def growth_percent(self) -> float:
        """Growth of memory over the second half, from a line fitted to it."""
        hours = self.second_half[-1].hours - self.second_half[0].hours
        return 100 * self.megabytes_per_hour * hours / self.second_half[0].megabytes

    @property
    def files_growth(self) -> int:
        """Maximum of open files in the last quarter, less that in the third quarter."""
        half = self.second_half
        third, last = half[: len(half) // 2], half[len(half) // 2 :]
        return max(usage.files for usage in last) - max(usage.files for usage in third)

    def sample(self, hours: float) -> None:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1])
        files = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        self.samples.append(Usage(hours, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, files))


@asynccontextmanager
async def monitored(pids: Mapping[str, int], interval: float) -> AsyncIterator[Mapping[str, ProcessMonitor]]:
    """Samples processes during the block, with this interval in seconds."""
    monitors = {name: ProcessMonitor(pid) for name, pid in pids.items()}
    task = asyncio.create_task(_sample(list(monitors.values()), interval))
    try:
        yield monitors
    finally:
        task.cancel()


async def _sample(monitors: Sequence[ProcessMonitor], interval: float) -> None:
    started = time.monotonic()
    while True:
        await asyncio.sleep(interval)
        for monitor in monitors:
            monitor.sample((time.monotonic() - started) / 3600)
