"""Process trees: a process and all its descendants, their memory, and how to kill them."""

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress

from tests.bench.proc_stat import PROC, all_stats, parent_id


def process_tree(root: int) -> list[int]:
    """A process and its descendants; only the process itself on systems without /proc."""
    parents = {process_id: parent_id(stat) for process_id, stat in all_stats()}
    return descendants(parents, root)


def descendants(parents: Mapping[int, int], root: int) -> list[int]:
    """The root and all its descendants, parents before children."""
    found = [root]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def resident_mb(root: int) -> float | None:
    """Proportional set size of a process tree in MB of 10^6 bytes; None on systems without /proc."""
    if not PROC.exists():
        return None
    return sum(_proportional_kb(pid) for pid in process_tree(root)) * 1024 / 1e6


def kill(pids: Iterable[int]) -> None:
    """Kills the processes that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _proportional_kb(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
