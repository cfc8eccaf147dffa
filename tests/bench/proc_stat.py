"""CPU time and parent of processes, from /proc/PID/stat; empty on systems other than Linux."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")

Stat = Sequence[str]
"""Fields of /proc/PID/stat from the third, the state, on; empty if the process has ended."""


def process_stat(process_id: int) -> Stat:
    with suppress(FileNotFoundError, ProcessLookupError):  # the process may end at any time
        return (PROC / str(process_id) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return ()


def all_stats() -> Iterator[tuple[int, Stat]]:
    """Ids and stats of all processes."""
    for folder in PROC.glob("[0-9]*"):
        if stat := process_stat(int(folder.name)):
            yield int(folder.name), stat


def parent_id(stat: Stat) -> int:
    return int(stat[1])


def cpu_seconds(stat: Stat, *, ended: bool = False) -> float:
    """CPU time of a process.

    Args:
        stat: of the process.
        ended: adds the CPU time of its children that have ended.
    """
    return sum(int(ticks) for ticks in stat[11 : 15 if ended else 13]) / os.sysconf("SC_CLK_TCK")
