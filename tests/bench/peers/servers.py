"""The expert host compared with LitServe and Ray Serve: the same model, the same 64 callers, one server at a time."""

import asyncio
import os
import statistics
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
from tests.bench.expert_callers import ExpertCaller, open_channel
from tests.bench.host import CALLERS, ONE_CORE
from tests.bench.load import per_second
from tests.bench.peers.process_tree import kill, process_tree, resident_mb
from tests.bench.processes import Running, service, stop
from tests.bench.rows import Row, gap, quantile

SERVERS = {"litserve": "LitServe", "ray": "Ray Serve"}
"""Names by package."""
RAY_SETTINGS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}

CALLS, ROUNDS = 24 * ITEMS, 3
TARGET_RATIO = 1.1
SERVER_TIMEOUT_SECONDS, STOP_SECONDS, POLL_SECONDS = 150.0, 15.0, 0.5


class ServerError(Exception):
    """A server failed to start; the message gives the reason."""


@dataclass
class ServerResult:
    """Results of one server.

    Attributes:
        rates: calls per second of each round.
        seconds: of each call.
        resident: MB of all its processes under load; None if unknown.
    """

    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    resident: float | None = None

    async def load(self, call: Callable[[], Awaitable[object]]) -> None:
        """Runs one round of calls."""

        async def timed() -> None:
            started = time.perf_counter()
            await call()
            self.seconds.append(time.perf_counter() - started)

        self.rates.append(await per_second(timed, callers=CALLERS, count=CALLS))

    @property
    def p99_ms(self) -> float:
        return round(1000 * quantile(self.seconds, 0.99))


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    with TemporaryDirectory() as home:
        async with (
            service("tests.bench.dense", "EXPERT", Path(home), max_waiting="256") as expert,
            open_channel(expert.address) as channel,
        ):
            caller = ExpertCaller(channel, "dense", task=TASK)
            await caller.run_sequentially(10)
            return [row for package in SERVERS for row in await server_rows(caller, expert, package)]


async def server_rows(caller: ExpertCaller, expert: Running, package: str) -> list[Row]:
    """Rows of the comparison with one server; gaps if it is not installed or fails.

    Args:
        caller: of the expert.
        expert: its process.
        package: of the other server.
    """
    if not find_spec(package):
        return _gaps(package, f"{package} is not installed: pip install -e '.[peers]'")
    try:
        async with asyncio.timeout(SERVER_TIMEOUT_SECONDS):
            return _compared(package, *await _measure(caller, expert, package))
    except ServerError as error:
        return _gaps(package, str(error))
    except httpx.HTTPError as error:
        return _gaps(package, f"it does not answer: {error!r}")
    except TimeoutError:
        return _gaps(package, f"it did not finish within {SERVER_TIMEOUT_SECONDS:g} s")


async def _measure(caller: ExpertCaller, expert: Running, package: str) -> tuple[ServerResult, ServerResult]:
    """Results of the expert host and of the other server, measured alternately."""
    ours, theirs = ServerResult(), ServerResult()
    async with _serving(package) as (process, client):

        async def call() -> None:
            (await client.post("/predict", json={"text": "a few words"})).raise_for_status()

        await _wait_until_ready(call, process)
        for _ in range(ROUNDS):
            await theirs.load(call)
            await ours.load(caller.call)
        theirs.resident, ours.resident = resident_mb(process.pid), resident_mb(expert.pid)
    return ours, theirs


def _compared(package: str, ours: ServerResult, theirs: ServerResult) -> list[Row]:
    """Rows of the comparison: the median of the rounds' ratios of rates, latencies of all calls."""
    rate, p99, resident = _names(package)
    name = SERVERS[package]
    ratio = statistics.median(own / other for own, other in zip(ours.rates, theirs.rates, strict=True))
    shared = f"{CALLERS} callers; target and reference: {name}"
    conditions = f"batches of at most {ITEMS}, one thread for the model; median of {ROUNDS} rounds of {CALLS} calls"
    return [
        Row(
            rate,
            round(ratio, 3),
            "",
            TARGET_RATIO,
            at_least=True,
            note=f"calls/s of the expert host over those of {name}, {statistics.median(theirs.rates):.1f}; "
            f"{CALLERS} callers, {conditions}",
        ),
        Row(p99, ours.p99_ms, "ms", theirs.p99_ms, theirs.p99_ms, f"99th percentile of all calls, {shared}"),
        _resident(resident, ours.resident, theirs.resident, f"all processes of the server after load, {shared}"),
    ]


def _resident(name: str, ours: float | None, theirs: float | None, note: str) -> Row:
    if ours is None or theirs is None:
        return gap(name, "MB", None, "this system does not report shared memory")
    return Row(name, round(ours), "MB", round(theirs), round(theirs), note)


def _gaps(package: str, why: str) -> list[Row]:
    rate, p99, resident = _names(package)
    return [gap(rate, "", TARGET_RATIO, why, at_least=True), gap(p99, "ms", None, why), gap(resident, "MB", None, why)]


def _names(package: str) -> tuple[str, str, str]:
    return f"host.over_{package}", f"host.p99_vs_{package}_ms", f"host.memory_vs_{package}_mb"


@asynccontextmanager
async def _serving(package: str) -> AsyncIterator[tuple[Process, httpx.AsyncClient]]:
    """Starts the other server on a free port, and stops all its processes afterwards."""
    address = free_address("127.0.0.1:0", option="")
    with TemporaryDirectory(prefix="r") as home:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"tests.bench.peers.with_{package}", address.rpartition(":")[2]),
            env={**os.environ, **RAY_SETTINGS, "RAY_TMPDIR": home},
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        limits = httpx.Limits(max_connections=CALLERS)
        try:
            async with httpx.AsyncClient(
                base_url=f"http://{address}", timeout=SERVER_TIMEOUT_SECONDS, limits=limits
            ) as client:
                yield process, client
        finally:
            await _stop_tree(process)


async def _stop_tree(process: Process) -> None:
    started = process_tree(process.pid)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await stop(process)
    except TimeoutError:
        process.kill()
    finally:
        kill(started[1:])  # children that the server left running
        await process.wait()


async def _wait_until_ready(call: Callable[[], Awaitable[None]], process: Process) -> None:
    """Waits until the server answers.

    Raises:
        ServerError: it has exited.
    """
    while True:
        try:
            await call()
        except httpx.HTTPError as error:
            if process.returncode is not None:
                raise ServerError(f"it exited with status {process.returncode} before it answered") from error
            await asyncio.sleep(POLL_SECONDS)
        else:
            return
