"""Processes that are killed, paused and restarted at the same address, with one log each."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from services.local.supervisor import environment, until_serving

READY_SECONDS = 30.0
STOP_SECONDS = 20.0
"""Time that a process may take to exit after SIGTERM."""
CANNOT_RUN = 1
"""Exit status of a service that could not start."""


class ManagedProcess:
    """A process that can be restarted.

    Args:
        name: of its log file.
        module: run with `python -m`.
        address: host:port of its gRPC server.
        settings: environment variables, in addition to those of this process.
        logs: folder of its log file.
    """

    def __init__(self, name: str, module: str, address: str, settings: Mapping[str, str], logs: Path) -> None:
        self.name = name
        self.address = address
        self.log = logs / f"{name}.log"
        self.statuses: list[int] = []
        """Exit statuses after `stop`."""
        self._module = module
        self._settings = {"GRPC_VERBOSITY": "NONE", "LOG_LEVEL": "WARNING", **settings}
        self._process: Process | None = None
        self._served = False
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def exited_unexpectedly(self) -> bool:
        """Whether it has exited without `kill` or `stop`."""
        return self._process is not None and self._process.returncode is not None

    async def start(self, *, ready: bool = True) -> None:
        """Starts the process; with ready, waits until it serves."""
        async with self._lock:
            await self._start()
        if ready:
            await self.ready()

    async def ready(self) -> None:
        """Waits until it serves."""
        async with asyncio.timeout(READY_SECONDS):
            await until_serving(self.address)
        self._served = True

    async def revive(self) -> bool:
        """Restarts the process if it could not start; returns whether it did so."""
        async with self._lock:
            failed = self._process is not None and self._process.returncode == CANNOT_RUN
            if failed:
                await self._end()
                await self._start()
        return failed

    async def _start(self) -> None:
        self._served = False
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "services.local.parent_watch", self._module),
                stdin=PIPE,  # closed when this process ends, which ends the child
                stdout=log,
                stderr=log,
                env=environment(self._settings),
            )

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Kills the process."""
        async with self._lock:
            await self._end()

    async def stop(self) -> None:
        """Stops the process with SIGTERM, as Kubernetes does.

        Raises:
            TimeoutError: it does not exit.
        """
        async with self._lock:
            if process := self._process:
                self.terminate()
                async with asyncio.timeout(STOP_SECONDS):
                    status = await process.wait()
                if status != -signal.SIGTERM or self._served:  # else it had no signal handler yet
                    self.statuses.append(status)
                await self._end()

    def errors(self) -> Iterator[str]:
        """Exit statuses other than 0, and unexpected log entries: errors, tracebacks, lines that are not JSON."""
        yield from (f"{self.name} exited with status {status}" for status in self.statuses if status)
        for line in self.log.read_text(errors="replace").splitlines() if self.log.exists() else ():
            if violation := _violation(line):
                yield f"{self.name}: {violation}"

    async def _end(self) -> None:
        if process := self._process:
            if process.returncode is None:
                process.kill()
            await process.wait()
            _close_stdin(process)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.returncode is None:
            self._process.send_signal(number)


def _close_stdin(process: Process) -> None:
    if process.stdin:
        process.stdin.close()


def _violation(line: str) -> str:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return line
    if "ExecuteBatchError" in str(entry.get("event")):
        return ""  # logged by gRPC: the caller was killed before the reply was sent
    if entry.get("event") == "cannot run" and "does not answer" in str(entry.get("error")):
        return ""  # the journal's connections were cut during the start: the supervisor restarts it
    if entry.get("level") in {"error", "critical"} or "exception" in entry:
        return "\n".join(str(entry[key]) for key in ("event", "error", "exception") if key in entry)
    return ""
