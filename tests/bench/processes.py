"""Starts and stops processes of the benchmark, and measures their CPU time and memory."""

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

from tests.bench.proc_stat import cpu_seconds, process_stat

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Running:
    """A server process.

    Attributes:
        pid: process id.
        address: host:port of its gRPC server.
        memory_limited: addresses of the memory-limited experts, of the scripted services only.
    """

    pid: int
    address: str
    memory_limited: tuple[str, ...] = ()

    async def resident_mb(self) -> float:
        return await resident_mb(self.pid)

    def cpu_seconds(self) -> float:
        """CPU time used so far; 0 on systems without /proc."""
        return cpu_seconds(process_stat(self.pid))

    @contextmanager
    def on_one_core(self) -> Iterator[None]:
        """Restricts the process to one core, where the system supports CPU affinity."""
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
                await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def service(module: str, prefix: str, home: Path, **settings: str) -> AsyncIterator[Running]:
    """Starts one service, and yields it once it serves.

    Args:
        module: run with `python -m`.
        prefix: of its environment variables.
        home: folder for data and logs; the log goes to a file, since a pipe that nothing reads would block.
        settings: values by name, without the prefix, in lower case.
    """
    log = home / f"{module}-{secrets.token_hex(4)}.log"
    variables = {f"{prefix}_{name.upper()}": value for name, value in settings.items()}
    listening = {f"{prefix}_LISTEN": "127.0.0.1:0", "GATEWAY_HTTP_LISTEN": "127.0.0.1:0", "LOG_LEVEL": "INFO"}
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            env={**os.environ, "HUGGINGGPT_HOME": str(home), **listening, **variables},
            stdout=DEVNULL,
            stderr=stderr,
        )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            port = await _port_in_log(process, log)
        yield Running(process.pid, f"127.0.0.1:{port}")
    finally:
        await stop(process)


async def _port_in_log(process: Process, log: Path) -> int:
    """Waits for the log entry "serving", and returns its port.

    Raises:
        RuntimeError: the process has ended; the message is its log.
    """
    while True:
        if process.returncode is not None:
            raise RuntimeError(b"\n".join(_entries(log)).decode())
        for entry in _entries(log):
            if b'"serving"' in entry:
                return int(json.loads(entry)["port"])
        await asyncio.sleep(POLL_SECONDS)


def _entries(log: Path) -> list[bytes]:
    return log.read_bytes().split(b"\n")[:-1]


@asynccontextmanager
async def start_scripted_services() -> AsyncIterator[Running]:
    """Starts the scripted planner, selector, responder and expert, in one process."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.bench.scripted_services", stdout=PIPE)
    try:
        address, *memory_limited = (await read_line(process)).split()
        yield Running(process.pid, address, tuple(memory_limited))
    finally:
        await stop(process)


@dataclass(frozen=True)
class Testbed:
    """Orchestrators that share a journal and call scripted services."""

    scripted: Running
    orchestrators: list[Running]

    @property
    def orchestrator(self) -> Running:
        return self.orchestrators[0]


@asynccontextmanager
async def start_testbed(home: Path, *, orchestrators: int = 1, **settings: str) -> AsyncIterator[Testbed]:
    """Starts scripted services in one process, and `python -m services.orchestrator` in others.

    Args:
        home: folder for logs and, unless settings name another, the journal.
        orchestrators: number of orchestrators.
        settings: of the orchestrators.
    """
    async with AsyncExitStack() as stack:
        scripted = await stack.enter_async_context(start_scripted_services())
        peers = dict.fromkeys(("planner", "selector", "responder"), scripted.address)
        merged = {"journal": str(home / "journal.sqlite"), **peers, **settings}
        started = [
            await stack.enter_async_context(service("services.orchestrator", "ORCHESTRATOR", home, **merged))
            for _ in range(orchestrators)
        ]
        yield Testbed(scripted, started)


@contextmanager
def cores(count: int | None = None, *, first: int = 0) -> Iterator[int]:
    """Restricts this process and its children to some cores, where the system supports CPU affinity.

    Args:
        count: how many; None for all that follow.
        first: number of cores to leave out; none is left out if there are no others.

    Yields:
        How many cores they may use.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield os.cpu_count() or 1
        return
    before = os.sched_getaffinity(0)
    chosen = sorted(before)[first:][:count] or sorted(before)
    _set_affinity(chosen)
    try:
        yield len(chosen)
    finally:
        _set_affinity(before)


def _set_affinity(numbers: Iterable[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # the thread may end at any time
            os.sched_setaffinity(int(thread.name), numbers)


async def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB of 10^6 bytes."""
    process = await asyncio.create_subprocess_exec("ps", "-o", "rss=", "-p", str(pid), stdout=PIPE)
    output, _ = await process.communicate()
    return int(output) * 1024 / 1e6


async def printed(module: str, *arguments: object, hide_stderr: bool = False) -> str:
    """Runs a program to its end, and returns what it has printed.

    Args:
        module: run with `python -m`.
        arguments: of the program.
        hide_stderr: discards its standard error.

    Raises:
        RuntimeError: its exit status is not 0.
    """
    command = (sys.executable, "-m", module, *(str(argument) for argument in arguments))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL if hide_stderr else None)
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} exited with status {process.returncode}")
    return output.decode().strip()


async def read_line(process: Process) -> str:
    """The next line that a process prints; empty at the end of its output."""
    assert process.stdout
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return (await process.stdout.readline()).decode().strip()


async def stop(process: Process) -> None:
    """Terminates a process, and waits until it has exited."""
    if process.returncode is None:
        process.terminate()
    await process.communicate()
