"""`make bench`: measures, prints tables, writes out/bench.json.

Named sections, as in `python -m tests.bench makespan`, are measured alone, and take the place of theirs in the file;
--help lists them.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from services.runtime import telemetry
from tests.bench import (
    charts,
    costs,
    doors,
    elsewhere,
    gpu,
    hops,
    host,
    images,
    journal,
    memory,
    observing,
    promptness,
    readiness,
    replicas,
    runs,
    takeover,
    throughput,
    torch_models,
    transfers,
)
from tests.bench.arrival import measuring as load
from tests.bench.arrival import soak
from tests.bench.batches import measuring as batches
from tests.bench.curves import Curve, Measured
from tests.bench.endtoend import measuring as endtoend
from tests.bench.report import OUT, found, section, show, write
from tests.bench.rivals import makespan
from tests.bench.rivals import measuring as rivals
from tests.bench.scale import artifacts, concurrency, conversations, models, tasks

CHARTS = Path("out/charts")

SECTIONS: dict[str, Callable[[], Awaitable[Sequence[Measured]]]] = {
    "cluster": readiness.rows,
    "runs": runs.rows,
    "gateway": doors.rows,
    "endtoend": endtoend.rows,
    "makespan": makespan.rows,
    "throughput": throughput.rows,
    "hops": hops.rows,
    "telemetry": observing.rows,
    "tasks": tasks.rows,
    "models": models.rows,
    "concurrency": concurrency.rows,
    "conversations": conversations.rows,
    "artifacts": artifacts.rows,
    "batches": batches.rows,
    "journal": journal.rows,
    "host": host.rows,
    "torch": torch_models.rows,
    "gpu": gpu.rows,
    "rivals": rivals.rows,
    "promptness": promptness.rows,
    "takeover": takeover.rows,
    "replicas": replicas.rows,
    "bytes": transfers.rows,
    "memory": memory.rows,
    "images": images.rows,
    "elsewhere": elsewhere.rows,
    "costs": costs.rows,
    "load": load.rows,
    "soak": soak.rows,
}
"""The first line of each one's module says what it measures."""


async def main(names: Sequence[str]) -> int:
    """How many of the sections failed."""
    telemetry.setup("bench", level="WARNING")
    measured, failed = list[Measured](), 0
    for name in names:
        print(f"measuring {name} …", file=sys.stderr)
        try:
            with _environment():
                measured += await _section(name)
        except Exception as error:  # noqa: BLE001  # the others are measured all the same
            print(f"{name} was not measured: {error!r}", file=sys.stderr)
            failed += 1
    show(measured)
    _draw([one for one in measured if isinstance(one, Curve)])
    return failed


def _draw(curves: Sequence[Curve]) -> None:
    if find_spec("matplotlib"):
        charts.draw(curves, CHARTS)
    else:
        print("no charts without matplotlib: make bench installs it", file=sys.stderr)


async def _section(name: str) -> Sequence[Measured]:
    rows = SECTIONS[name]
    measured = await rows()
    write(found(OUT).having(name, section(_about(rows), measured), SECTIONS), OUT)
    return measured


def _about(rows: Callable[[], object]) -> str:
    return (sys.modules[rows.__module__].__doc__ or "").partition("\n")[0]


@contextmanager
def _environment() -> Iterator[None]:
    """What a section sets in it is gone with the section."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measures; prints tables.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all by default")
    sys.exit(1 if asyncio.run(main(parser.parse_args().sections or list(SECTIONS))) else 0)
