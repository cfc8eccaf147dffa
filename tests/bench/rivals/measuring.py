"""Our host beside LitServe and Ray Serve: the same model, the same 64 callers, one server at a time."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from services.ports import free
from tests.bench.asking import Asker, reaching
from tests.bench.dense.tasks import ITEMS, TASK
from tests.bench.host import CALLERS, ONE_CORE
from tests.bench.load import per_second
from tests.bench.processes import service, stopped
from tests.bench.rows import Row, gap

ROOT = Path(__file__).parents[3]
RIVALS = {"litserve": "litserve>=0.2.19,<0.3", "ray": "ray[serve]>=2.60,<3"}
PLAIN = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_AUTH_MODE": "disabled"}
"""Ray's workers run where it does, and leave nothing at home."""

CALLS, ROUNDS = 24 * ITEMS, 3
START_SECONDS = 120.0


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    with TemporaryDirectory() as home:
        async with (
            service("tests.bench.dense", "EXPERT", Path(home), max_waiting="256") as expert,
            reaching(expert.address) as channel,
        ):
            asker = Asker(channel, "dense", task=TASK)
            await asker.in_turn(10)
            return [await _tried(asker, name, package) for name, package in RIVALS.items()]


async def _tried(asker: Asker, name: str, package: str) -> Row:
    try:
        return await _beside(asker, name, package)
    except httpx.HTTPError as error:
        return gap(f"host.over_{name}", "", 1, f"it does not answer: {error!r}", at_least=True)


async def _beside(asker: Asker, name: str, package: str) -> Row:
    """Both take turns, and each is judged by its best."""
    async with _served(name, package) as client:

        async def ask() -> None:
            (await client.post("/predict", json={"text": "a few words"})).raise_for_status()

        await _until(ask)
        ours, theirs = list[float](), list[float]()
        for _ in range(ROUNDS):
            theirs.append(await per_second(ask, callers=CALLERS, count=CALLS))
            ours.append(await per_second(asker.ask, callers=CALLERS, count=CALLS))
    note = f"calls/s of ours over those of {package.partition('>')[0]}, {max(theirs):.1f}; {CALLERS} callers"
    return Row(f"host.over_{name}", round(max(ours) / max(theirs), 3), "", 1, at_least=True, note=note)


@asynccontextmanager
async def _served(name: str, package: str) -> AsyncIterator[httpx.AsyncClient]:
    """The rival on a free port, with its package in an environment made for this run."""
    address = free("127.0.0.1:0", option="")
    alone = ("--quiet", "--no-project", "--isolated", "--python", sys.executable, "--with", package, "--with", "numpy")
    program = ("python", "-m", f"tests.bench.rivals.with_{name}", address.rpartition(":")[2])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uv", "run", *alone, *program),
        env={**os.environ, "PYTHONPATH": str(ROOT), **PLAIN},
        cwd=ROOT,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    limits = httpx.Limits(max_connections=CALLERS)
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=120, limits=limits) as client:
            yield client
    finally:
        await stopped(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left behind


async def _until(ask: Callable[[], Awaitable[None]]) -> None:
    """Waits until it answers."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            await ask()
        except httpx.HTTPError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.5)
        else:
            return
