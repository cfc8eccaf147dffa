"""`make bench`: runs the benchmarks, prints tables and writes out/bench.json.

`make bench SECTION=hops,host`, or `python -m tests.bench hops host`, measures only these sections and replaces only
their results in the file; --help lists the sections.
"""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from services.common import logging
from tests.bench import (
    charts,
    costs,
    gateway,
    gpu,
    hops,
    host,
    images,
    journal,
    memory,
    other_reports,
    parsing,
    readiness,
    replicas,
    response_times,
    runs,
    sampling,
    takeover,
    throughput,
    torch_models,
    transfers,
)
from tests.bench import telemetry as telemetry_module
from tests.bench.batches import section as batches
from tests.bench.bulk import section as bulk
from tests.bench.curves import Curve, Measured
from tests.bench.endtoend import section as endtoend
from tests.bench.open_loop import section as load
from tests.bench.open_loop import soak
from tests.bench.peers import makespan, servers
from tests.bench.report import OUT, load_report, section, set_aside, show, write
from tests.bench.scale import artifacts, concurrency, conversations, models, tasks

CHARTS = Path("out/charts")

SECTIONS: dict[str, Callable[[], Awaitable[Sequence[Measured]]]] = {
    "cluster": readiness.rows,
    "runs": runs.rows,
    "gateway": gateway.rows,
    "endtoend": endtoend.rows,
    "makespan": makespan.rows,
    "throughput": throughput.rows,
    "hops": hops.rows,
    "telemetry": telemetry_module.rows,
    "tasks": tasks.rows,
    "models": models.rows,
    "concurrency": concurrency.rows,
    "conversations": conversations.rows,
    "artifacts": artifacts.rows,
    "batches": batches.rows,
    "bulk": bulk.rows,
    "journal": journal.rows,
    "host": host.rows,
    "torch": torch_models.rows,
    "sampling": sampling.rows,
    "gpu": gpu.rows,
    "other_servers": servers.rows,
    "response_times": response_times.rows,
    "parsing": parsing.rows,
    "takeover": takeover.rows,
    "replicas": replicas.rows,
    "bytes": transfers.rows,
    "memory": memory.rows,
    "images": images.rows,
    "reports": other_reports.rows,
    "costs": costs.rows,
    "load": load.rows,
    "soak": soak.rows,
}
"""Functions that measure, by section; the first line of a module's docstring describes its section."""


async def main(names: Sequence[str]) -> int:
    """Measures the sections, and returns how many failed."""
    logging.setup("bench", level="WARNING")
    if saved := set_aside(OUT):
        print(f"{OUT} was measured on another machine and is now {saved}", file=sys.stderr)
    measured, failed = list[Measured](), 0
    for name in names:
        print(f"measuring {name} …", file=sys.stderr)
        try:
            with _environment():
                measured += await _section(name)
        except Exception as error:  # noqa: BLE001  # the other sections are measured nevertheless
            print(f"{name} was not measured: {error!r}", file=sys.stderr)
            failed += 1
    show(measured)
    _draw([one for one in measured if isinstance(one, Curve)])
    return failed


def _draw(curves: Sequence[Curve]) -> None:
    if find_spec("matplotlib"):
        charts.draw(curves, CHARTS)
    else:
        print("charts need matplotlib, which `make bench` installs", file=sys.stderr)


async def _section(name: str) -> Sequence[Measured]:
    rows = SECTIONS[name]
    measured = await rows()
    write(load_report(OUT).with_section(name, section(_about(rows), measured), SECTIONS), OUT)
    return measured


def _about(rows: Callable[[], object]) -> str:
    return (sys.modules[rows.__module__].__doc__ or "").partition("\n")[0]


@contextmanager
def _environment() -> Iterator[None]:
    """Restores the environment variables that a section has set."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class UnknownSectionError(ValueError):
    """A section that does not exist; the message lists those that do."""


def requested(arguments: Sequence[str]) -> Sequence[str]:
    """The sections to measure, each once; all of them if none is named.

    Args:
        arguments: names of sections, separated by commas or spaces.

    Raises:
        UnknownSectionError: a name is not that of a section.
    """
    names = list(dict.fromkeys(re.findall(r"[^\s,]+", " ".join(arguments))))
    if unknown := [name for name in names if name not in SECTIONS]:
        raise UnknownSectionError(f"no such section: {', '.join(unknown)}. The sections are:\n{_listing()}")
    return names or list(SECTIONS)


def _listing() -> str:
    """A line for each section: its name and what it measures."""
    width = max(map(len, SECTIONS))
    return "\n".join(f"  {name:{width}}  {_about(rows)}" for name, rows in SECTIONS.items())


def run(arguments: Sequence[str]) -> int:
    """Measures the sections named on the command line.

    Returns:
        The exit code: 0 if all were measured, 1 if one failed, 2 if a name is unknown.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=f"Measures and prints tables. The sections are:\n{_listing()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="separated by commas or spaces; default: all")
    try:
        names = requested(parser.parse_args(arguments).sections)
    except UnknownSectionError as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if asyncio.run(main(names)) else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
