"""The campaign's processes: each has a name and an address for all its lives, and a log that is read at the end."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from services.supervisor import environment, until_serving

READY_SECONDS = 30.0
STOP_SECONDS = 20.0
"""How long a process may take to end after SIGTERM."""


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
        self.lives += 1
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "services.leash", self._module),
                stdin=PIPE,  # if we are killed, it ends
                stdout=log,
                stderr=log,
                env=environment(self._settings),
            )
        if ready:
            async with asyncio.timeout(READY_SECONDS):
                await until_serving(self.address)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Ends a life at once."""
        if process := self._process:
            if process.returncode is None:
                process.kill()
            await process.wait()
            _unleash(process)
            self._process = None

    async def stop(self) -> None:
        """Ends a life as a deployment does.

        Raises:
            TimeoutError: it does not end.
        """
        if process := self._process:
            self.ask_to_stop()
            async with asyncio.timeout(STOP_SECONDS):
                self.statuses.append(await process.wait())
            _unleash(process)
            self._process = None

    def errors(self) -> Iterator[str]:
        """What its log has that nobody expects: errors, tracebacks, lines that are no JSON, ends of its own accord."""
        yield from (f"{self.name} ended with status {status}" for status in self.statuses if status)
        for line in self.log.read_text(errors="replace").splitlines() if self.log.exists() else ():
            if complaint := _complaint(line):
                yield f"{self.name}: {complaint}"

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
    if said.get("level") in {"error", "critical"} or "exception" in said:
        return "\n".join(str(said[key]) for key in ("event", "error", "exception") if key in said)
    return ""
