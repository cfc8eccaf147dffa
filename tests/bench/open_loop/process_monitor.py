"""What processes hold while they work: memory and open files, looked at now and then."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.curves import fit


@dataclass(frozen=True)
class Held:
    """What one process held at a moment."""

    hours: float
    """Since one began to look."""
    megabytes: float
    files: int


@dataclass(frozen=True)
class Watch:
    """What was seen of one process, in order."""

    pid: int
    seen: list[Held] = field(default_factory=list)

    @property
    def latter(self) -> Sequence[Held]:
        """Seen in the latter half of the time: by then caches are full."""
        return self.seen[len(self.seen) // 2 :]

    @property
    def megabytes_per_hour(self) -> float:
        return fit([(held.hours, held.megabytes) for held in self.latter]).slope

    @property
    def percent(self) -> float:
        """By which the line through the memory of the latter half rises."""
        hours = self.latter[-1].hours - self.latter[0].hours
        return 100 * self.megabytes_per_hour * hours / self.latter[0].megabytes

    @property
    def files(self) -> int:
        """How many more are open at most in the last quarter than in the third."""
        half = self.latter
        return max(held.files for held in half[len(half) // 2 :]) - max(held.files for held in half[: len(half) // 2])

    def look(self, hours: float) -> None:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="utf-8").split()[1])
        files = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        self.seen.append(Held(hours, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, files))


@asynccontextmanager
async def watching(pids: Mapping[str, int], every: float) -> AsyncIterator[Mapping[str, Watch]]:
    """Looks at processes as long as the block lasts, once in so many seconds."""
    watches = {name: Watch(pid) for name, pid in pids.items()}
    task = asyncio.create_task(_look(list(watches.values()), every))
    try:
        yield watches
    finally:
        task.cancel()


async def _look(watches: Sequence[Watch], every: float) -> None:
    begun = time.monotonic()
    while True:
        await asyncio.sleep(every)
        for watch in watches:
            watch.look((time.monotonic() - begun) / 3600)
