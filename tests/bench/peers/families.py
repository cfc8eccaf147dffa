"""A server's processes: itself, and all that it has started."""

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress

from tests.bench.accounts import PROC, accounts, parent


def family(first: int) -> list[int]:
    """A process and those that descend from it; it alone where the system does not say."""
    parents = {process_id: parent(found) for process_id, found in accounts()}
    return descendants(parents, first)


def descendants(parents: Mapping[int, int], first: int) -> list[int]:
    """The first and all below it, parents before children."""
    found = [first]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def resident_mb(first: int) -> float | None:
    """Memory of a family in MB of 10^6 bytes, each page it shares counted once; None where the system does not say."""
    if not PROC.exists():
        return None
    return sum(_share(pid) for pid in family(first)) * 1024 / 1e6


def end(pids: Iterable[int]) -> None:
    """Kills those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _share(pid: int) -> int:
    """Kilobytes."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
