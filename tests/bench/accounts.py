"""What Linux accounts for each process, in /proc; nothing on other systems."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")

Account = Sequence[str]
"""Fields of a process's stat from its state on, which is the third; none if it has ended."""


def account(process_id: int) -> Account:
    with suppress(FileNotFoundError, ProcessLookupError):  # processes come and go
        return (PROC / str(process_id) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return ()


def accounts() -> Iterator[tuple[int, Account]]:
    """Of all processes that there are, by their ids."""
    for folder in PROC.glob("[0-9]*"):
        if found := account(int(folder.name)):
            yield int(folder.name), found


def parent(found: Account) -> int:
    return int(found[1])


def cpu_seconds(found: Account, *, ended: bool = False) -> float:
    """Processor time that it has used, and on demand also what its children had used when they ended."""
    return sum(int(ticks) for ticks in found[11 : 15 if ended else 13]) / os.sysconf("SC_CLK_TCK")
