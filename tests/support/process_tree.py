"""Memory of a process and its descendants."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def descendants(process_id: int | None = None) -> Iterator[int]:
    """Process ids of all descendants of a process; of this process by default."""
    for children in (_PROC / str(process_id or os.getpid()) / "task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            for child in children.read_text(encoding="ascii").split():
                yield int(child)
                yield from descendants(int(child))


def is_running(process_id: int) -> bool:
    """Whether a process exists and has not ended."""
    with suppress(OSError):
        return " Z " not in (_PROC / str(process_id) / "stat").read_text(encoding="ascii")
    return False


def memory_bytes(process_id: int | None = None) -> int:
    """Memory of a process and its descendants in bytes; shared memory counts once."""
    root = process_id or os.getpid()
    return sum(_proportional_bytes(one) for one in (root, *descendants(root)))


def _proportional_bytes(process_id: int) -> int:
    with suppress(OSError):  # it has ended
        lines = (_PROC / str(process_id) / "smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0
