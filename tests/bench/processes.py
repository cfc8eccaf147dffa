"""Processes of the benchmark: started, found, and looked at while they run."""

import asyncio
import json
import os
import secrets
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.accounts import account, cpu_seconds

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Running:
    """A process that serves."""

    pid: int
    address: str
    shelves: tuple[str, ...] = ()
    """Where the experts with little room are."""

    async def resident_mb(self) -> float:
        return await resident_mb(self.pid)

    def cpu_seconds(self) -> float:
        """Processor time it has used; 0 where the system does not say."""
        return cpu_seconds(account(self.pid))

    @contextmanager
    def on_one_core(self) -> Iterator[None]:
        """It has one core; on systems that cannot say so, all of them."""
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(self.pid)
        os.sched_setaffinity(self.pid, sorted(before)[:1])
        try:
            yield
        finally:
            os.sched_setaffinity(self.pid, before)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    async def until_exited(self) -> None:
        """Waits until the process has exited and asyncio has collected its exit status."""
        with suppress(ProcessLookupError):
            while True:
                os.kill(self.pid, 0)
                await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def service(module: str, prefix: str, home: Path, **settings: str) -> AsyncIterator[Running]:
    """One service by itself, once it serves; its log is a file, so that nobody is needed to read it."""
    log = home / f"{module}-{secrets.token_hex(4)}.log"
    told = {f"{prefix}_{name.upper()}": value for name, value in settings.items()}
    listening = {f"{prefix}_LISTEN": "127.0.0.1:0", "GATEWAY_HTTP_LISTEN": "127.0.0.1:0", "LOG_LEVEL": "INFO"}
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            env={**os.environ, "HUGGINGGPT_HOME": str(home), **listening, **told},
            stdout=DEVNULL,
            stderr=stderr,
        )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            port = await _told(process, log)
        yield Running(process.pid, f"127.0.0.1:{port}")
    finally:
        await stopped(process)


async def _told(process: Process, log: Path) -> int:
    """The port on which a service's log says that it serves.

    Raises:
        RuntimeError: it has ended; the message is its log.
    """
    while True:
        if process.returncode is not None:
            raise RuntimeError(b"\n".join(_entries(log)).decode())
        for entry in _entries(log):
            if b'"serving"' in entry:
                return int(json.loads(entry)["port"])
        await asyncio.sleep(LOOK_SECONDS)


def _entries(log: Path) -> list[bytes]:
    return log.read_bytes().split(b"\n")[:-1]


@asynccontextmanager
async def cast() -> AsyncIterator[Running]:
    """The scripted planner, selector, responder and expert."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.bench.cast", stdout=PIPE)
    try:
        address, *shelves = (await line(process)).split()
        yield Running(process.pid, address, tuple(shelves))
    finally:
        await stopped(process)


@dataclass(frozen=True)
class Stage:
    """An orchestrator among the scripted cast, with a journal of its own."""

    cast: Running
    orchestrators: list[Running]

    @property
    def orchestrator(self) -> Running:
        return self.orchestrators[0]


@asynccontextmanager
async def staged(home: Path, *, orchestrators: int = 1, **settings: str) -> AsyncIterator[Stage]:
    """The cast in one process, and `python -m services.orchestrator` in others, which share a journal.

    Args:
        home: where the journal and logs are; settings may name another journal.
        orchestrators: how many.
        settings: of the orchestrators, as in their environment.
    """
    async with AsyncExitStack() as stack:
        scripted = await stack.enter_async_context(cast())
        peers = dict.fromkeys(("planner", "selector", "responder"), scripted.address)
        told = {"journal": str(home / "journal.sqlite"), **peers, **settings}
        started = [
            await stack.enter_async_context(service("services.orchestrator", "ORCHESTRATOR", home, **told))
            for _ in range(orchestrators)
        ]
        yield Stage(scripted, started)


@contextmanager
def cores(count: int) -> Iterator[None]:
    """This process and those it starts share so many cores; on systems that cannot say so, they have them all."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    _stay_on(sorted(before)[:count])
    try:
        yield
    finally:
        _stay_on(before)


def _stay_on(numbers: Iterable[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # threads come and go
            os.sched_setaffinity(int(thread.name), numbers)


async def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB of 10^6 bytes."""
    process = await asyncio.create_subprocess_exec("ps", "-o", "rss=", "-p", str(pid), stdout=PIPE)
    output, _ = await process.communicate()
    return int(output) * 1024 / 1e6


async def printed(module: str, *arguments: object, quietly: bool = False) -> str:
    """What a program prints that runs to its end.

    Args:
        module: the program's.
        arguments: of it.
        quietly: what it says beside that is not shown.

    Raises:
        RuntimeError: it has ended badly.
    """
    command = (sys.executable, "-m", module, *(str(argument) for argument in arguments))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL if quietly else None)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} has ended with status {process.returncode}")
    return output.decode().strip()


async def line(process: Process) -> str:
    """The next line that a process prints."""
    assert process.stdout
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await process.stdout.readline()).decode().strip()


async def stopped(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.communicate()
