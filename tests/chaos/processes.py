"""The campaign's processes: each has a name and an address for all its lives, and a log that is read at the end."""

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
"""How long a process may take to end after SIGTERM."""
CANNOT_RUN = 1
"""The exit status of a service that could not start, and says so."""


class Member:
    """One process over all its lives.

    Args:
        name: of its log.
        module: what it runs.
        address: host:port where it answers.
        settings: its environment, over this process's own.
        logs: the folder of its log.
    """

    def __init__(self, name: str, module: str, address: str, settings: Mapping[str, str], logs: Path) -> None:
        self.name = name
        self.address = address
        self.lives = 0
        self.log = logs / f"{name}.log"
        self.statuses: list[int] = []
        """Exit statuses of lives that ended when nobody had killed them."""
        self._module = module
        self._settings = {"GRPC_VERBOSITY": "NONE", "LOG_LEVEL": "WARNING", **settings}
        self._process: Process | None = None
        self._served = False
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def died(self) -> bool:
        """It has ended though nobody ended it."""
        return self._process is not None and self._process.returncode is not None

    async def start(self, *, ready: bool = True) -> None:
        """Begins a life; with ready, waits until it serves."""
        async with self._turn:
            await self._start()
        if ready:
            await self.ready()

    async def ready(self) -> None:
        """Waits until it serves."""
        async with asyncio.timeout(READY_SECONDS):
            await until_serving(self.address)
        self._served = True

    async def revive(self) -> bool:
        """Does a supervisor's work: begins another life if the last could not start."""
        async with self._turn:
            could_not = self._process is not None and self._process.returncode == CANNOT_RUN
            if could_not:
                await self._end()
                await self._start()
        return could_not

    async def _start(self) -> None:
        self.lives += 1
        self._served = False
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "services.local.parent_watch", self._module),
                stdin=PIPE,  # if we are killed, it ends
                stdout=log,
                stderr=log,
                env=environment(self._settings),
            )

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Ends a life at once."""
        async with self._turn:
            await self._end()

    async def stop(self) -> None:
        """Ends a life as a deployment does.

        Raises:
            TimeoutError: it does not end.
        """
        async with self._turn:
            if process := self._process:
                self.ask_to_stop()
                async with asyncio.timeout(STOP_SECONDS):
                    status = await process.wait()
                if status != -signal.SIGTERM or self._served:  # else it had not come so far as to hear signals
                    self.statuses.append(status)
                await self._end()

    def errors(self) -> Iterator[str]:
        """What its log has that nobody expects: errors, tracebacks, lines that are no JSON, ends of its own accord."""
        yield from (f"{self.name} ended with status {status}" for status in self.statuses if status)
        for line in self.log.read_text(errors="replace").splitlines() if self.log.exists() else ():
            if complaint := _complaint(line):
                yield f"{self.name}: {complaint}"

    async def _end(self) -> None:
        if process := self._process:
            if process.returncode is None:
                process.kill()
            await process.wait()
            _unleash(process)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.returncode is None:
            self._process.send_signal(number)


def _unleash(process: Process) -> None:
    if process.stdin:
        process.stdin.close()


def _complaint(line: str) -> str:
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError:
        return line
    if "ExecuteBatchError" in str(said.get("event")):
        return ""  # gRPC's own: whoever had called was killed before the reply could be sent
    if said.get("event") == "cannot run" and "does not answer" in str(said.get("error")):
        return ""  # the journal's connections were cut while it started: its supervisor starts it again
    if said.get("level") in {"error", "critical"} or "exception" in said:
        return "\n".join(str(said[key]) for key in ("event", "error", "exception") if key in said)
    return ""
