"""Our host beside LitServe and Ray Serve: the same model, the same 64 callers, one server at a time."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from services.local.ports import free_address
from tests.bench.dense.tasks import ITEMS, TASK
from tests.bench.expert_callers import Asker, reaching
from tests.bench.host import CALLERS, ONE_CORE
from tests.bench.load import per_second
from tests.bench.peers.families import end, family, resident_mb
from tests.bench.processes import Running, service, stopped
from tests.bench.rows import Row, gap, quantile

RIVALS = {"litserve": "LitServe", "ray": "Ray Serve"}
"""By the package that each is."""
PLAIN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
"""Ray keeps to itself."""

CALLS, ROUNDS = 24 * ITEMS, 3
RIVAL_SECONDS, STOP_SECONDS, LOOK_SECONDS = 150.0, 15.0, 0.5


class RivalError(Exception):
    """A rival that does not serve; the message says why."""


@dataclass
class Served:
    """What one server came to."""

    rates: list[float] = field(default_factory=list)
    """Calls a second, round by round."""
    seconds: list[float] = field(default_factory=list)
    """Of each call."""
    resident: float | None = None
    """MB, of all its processes under load; None where the system does not say."""

    async def load(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Another round."""

        async def timed() -> None:
            begun = time.perf_counter()
            await ask()
            self.seconds.append(time.perf_counter() - begun)

        self.rates.append(await per_second(timed, callers=CALLERS, count=CALLS))

    @property
    def p99_ms(self) -> float:
        return round(1000 * quantile(self.seconds, 0.99))


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    with TemporaryDirectory() as home:
        async with (
            service("tests.bench.dense", "EXPERT", Path(home), max_waiting="256") as expert,
            reaching(expert.address) as channel,
        ):
            asker = Asker(channel, "dense", task=TASK)
            await asker.in_turn(10)
            return [row for package in RIVALS for row in await _tried(asker, expert, package)]


async def _tried(asker: Asker, expert: Running, package: str) -> list[Row]:
    if not find_spec(package):
        return _gaps(package, f"{package} is not installed: pip install -e '.[peers]'")
    try:
        async with asyncio.timeout(RIVAL_SECONDS):
            return _compared(package, *await _beside(asker, expert, package))
    except RivalError as error:
        return _gaps(package, str(error))
    except httpx.HTTPError as error:
        return _gaps(package, f"it does not answer: {error!r}")
    except TimeoutError:
        return _gaps(package, f"it was not done after {RIVAL_SECONDS:g} s")


async def _beside(asker: Asker, expert: Running, package: str) -> tuple[Served, Served]:
    """Ours and theirs, which take turns."""
    ours, theirs = Served(), Served()
    async with _serving(package) as (process, client):

        async def ask() -> None:
            (await client.post("/predict", json={"text": "a few words"})).raise_for_status()

        await _until(ask, process)
        for _ in range(ROUNDS):
            await theirs.load(ask)
            await ours.load(asker.ask)
        theirs.resident, ours.resident = resident_mb(process.pid), resident_mb(expert.pid)
    return ours, theirs


def _compared(package: str, ours: Served, theirs: Served) -> list[Row]:
    """Each is judged by its best round; of calls, all of them count."""
    rate, p99, resident = _names(package)
    name, best = RIVALS[package], max(theirs.rates)
    shared = f"{CALLERS} callers; target and reference: {name}"
    return [
        Row(
            rate,
            round(max(ours.rates) / best, 3),
            "",
            1,
            at_least=True,
            note=f"calls/s of ours over those of {name}, {best:.1f}; {CALLERS} callers",
        ),
        Row(p99, ours.p99_ms, "ms", theirs.p99_ms, theirs.p99_ms, f"99th percentile of all calls, {shared}"),
        _resident(resident, ours.resident, theirs.resident, f"all processes of the server after load, {shared}"),
    ]


def _resident(name: str, ours: float | None, theirs: float | None, note: str) -> Row:
    if ours is None or theirs is None:
        return gap(name, "MB", None, "this system does not say what processes share")
    return Row(name, round(ours), "MB", round(theirs), round(theirs), note)


def _gaps(package: str, why: str) -> list[Row]:
    rate, p99, resident = _names(package)
    return [gap(rate, "", 1, why, at_least=True), gap(p99, "ms", None, why), gap(resident, "MB", None, why)]


def _names(package: str) -> tuple[str, str, str]:
    return f"host.over_{package}", f"host.p99_beside_{package}_ms", f"host.beside_{package}_mb"


@asynccontextmanager
async def _serving(package: str) -> AsyncIterator[tuple[Process, httpx.AsyncClient]]:
    """The rival on a free port; nothing of it is left afterwards."""
    address = free_address("127.0.0.1:0", option="")
    with TemporaryDirectory(prefix="r") as home:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"tests.bench.peers.with_{package}", address.rpartition(":")[2]),
            env={**os.environ, **PLAIN, "RAY_TMPDIR": home},
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        limits = httpx.Limits(max_connections=CALLERS)
        try:
            async with httpx.AsyncClient(base_url=f"http://{address}", timeout=RIVAL_SECONDS, limits=limits) as client:
                yield process, client
        finally:
            await _ended(process)


async def _ended(process: Process) -> None:
    started = family(process.pid)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await stopped(process)
    except TimeoutError:
        process.kill()
    finally:
        end(started[1:])  # what it left behind
        await process.wait()


async def _until(ask: Callable[[], Awaitable[None]], process: Process) -> None:
    """Waits until it answers.

    Raises:
        RivalError: it has ended instead.
    """
    while True:
        try:
            await ask()
        except httpx.HTTPError as error:
            if process.returncode is not None:
                raise RivalError(f"it ended with status {process.returncode} before it answered") from error
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return
