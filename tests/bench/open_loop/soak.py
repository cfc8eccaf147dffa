"""Whether the services hold what they need and no more, asked for half an hour for all that people ask."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.curves import Curve, Measured
from tests.bench.open_loop.closed_loop import pace
from tests.bench.open_loop.mixed_load import Mixed, mixed
from tests.bench.open_loop.process_monitor import Watch, watching
from tests.bench.rows import Row, gap
from tests.bench.separate_processes import House, standing
from tests.bench.service_processes import ROOMS
from tests.support import postgres

SECONDS = float(os.environ.get("SOAK_SECONDS") or (90 if os.environ.get("CI") else 1_800))
LOOKS = 180
SHARE = 0.4
"""Of what callers get that wait for their answers."""
PERCENT, FILES = 5.0, 8
"""Most that memory, and open files, may have grown by over the latter half."""


async def rows() -> list[Measured]:
    """Growth of every service; none where PostgreSQL is not installed."""
    try:
        with postgres.standing() as url, TemporaryDirectory() as home:
            async with standing(Path(home), url) as house:
                return await _soaked(house)
    except RuntimeError as error:
        return [gap(f"soak.{room}_growth_percent", "%", PERCENT, str(error)) for room in ROOMS]


async def _soaked(house: House) -> list[Measured]:
    await pace(house)
    rate = round(SHARE * await pace(house), 1)
    pids = {name: running.pid for name, running in house.rooms.items()}
    async with watching(pids, SECONDS / LOOKS) as watches:
        came = await mixed(house.port, rate, SECONDS)
    return [*_growth(watches, rate), *_files(watches), _wrong(came), _memory(watches)]


def _growth(watches: Mapping[str, Watch], rate: float) -> Iterator[Row]:
    for room, watch in watches.items():
        note = (
            f"{watch.megabytes_per_hour:+.1f} MB an hour over the latter half of {SECONDS / 60:g} minutes, "
            f"{rate:g} requests a second of every kind; reference: MB at the end"
        )
        yield Row(
            f"soak.{room}_growth_percent", round(watch.percent, 1), "%", PERCENT, round(watch.seen[-1].megabytes), note
        )


def _files(watches: Mapping[str, Watch]) -> Iterator[Row]:
    most = max(watches, key=lambda room: watches[room].files)
    note = f"open files and connections that {most} has more of in the last quarter than in the third"
    yield Row("soak.files_growth", watches[most].files, "", FILES, watches[most].seen[-1].files, note)


def _wrong(came: Mixed) -> Row:
    asked = ", ".join(f"{kind} {count:,}" for kind, count in came.asked.items())
    mostly = ", ".join(f"{count} x {what}" for what, count in Counter(came.wrong).most_common(3)) or "none"
    note = f"requests that did not end as they should: {mostly}; asked: {asked}"
    return Row("soak.wrong", sum(came.wrong.values()), "", 0, note=note)


def _memory(watches: Mapping[str, Watch]) -> Curve:
    return Curve(
        "soak.memory",
        "Memory while everything is asked for, all the time",
        "time (minutes)",
        "resident memory (MB)",
        {room: _line(watch) for room, watch in watches.items()},
        fitted=False,
    )


def _line(watch: Watch) -> Sequence[tuple[float, float]]:
    return [(60 * held.hours, held.megabytes) for held in watch.seen]
