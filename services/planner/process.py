"""A process that plans long requests: it can be ended, and what it computes delays nothing else.

Planning is Python code, which shares its interpreter with every other service of the same process. What a long request
costs depends on what it is made of, so the process that plans it has a limit of processor time for each plan.
"""

import asyncio
import pickle
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import BinaryIO, cast

import structlog

from services.common.errors import Unavailable
from services.planner.embedded.planning import Embedded
from services.planner.plan import Draft
from services.planner.request import Request
from services.planner.task_spec import Catalogue, standard_specs

log = structlog.get_logger(__name__)

CPU_SECONDS = 1.5
"""Limit of processor time of one plan."""

WALL_SECONDS = 60.0
"""Limit of wall time of one plan, including the start of the process, on an overloaded machine."""

IDLE_SECONDS = 600.0
"""Idle time after which the process ends to free its memory; restarting takes about a second."""

_LENGTH = struct.Struct("!Q")


class PlanningLimitExceeded(Exception):
    """A plan exceeded its limit of processor time."""


class PlanningProcess:
    """Plans requests in a separate process, one after the other; it starts with the first request.

    Args:
        cpu_seconds: limit of processor time of one plan.
        idle_seconds: idle time after which the process ends.
    """

    def __init__(self, *, cpu_seconds: float = CPU_SECONDS, idle_seconds: float = IDLE_SECONDS) -> None:
        self.cpu_seconds = cpu_seconds
        self._idle_seconds = idle_seconds
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._catalogue: Catalogue | None = None
        """What the process has been sent."""
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None if it is not running."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def plan(self, request: Request, catalogue: Catalogue) -> Draft:
        """Plans a request without an LLM.

        Raises:
            OverLimit: it takes too long.
            Unavailable: the process ended for another reason.
        """
        async with self._lock:
            self._stop_timer()
            try:
                draft = await self._plan(request, catalogue)
            except BaseException:
                await self._end()
                raise
            self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._expire)
            return draft

    async def close(self) -> None:
        """Ends the process, even during a plan."""
        self._stop_timer()
        await self._end()

    async def _plan(self, request: Request, catalogue: Catalogue) -> Draft:
        process = await self._start()
        reader, writer = process.stdout, process.stdin
        assert reader  # noqa: S101  # a pipe
        assert writer  # noqa: S101  # a pipe
        news = None if catalogue is self._catalogue else dict(catalogue)
        content = pickle.dumps((request, news, self.cpu_seconds))
        try:
            async with asyncio.timeout(WALL_SECONDS):
                writer.write(_LENGTH.pack(len(content)) + content)
                await writer.drain()
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                answer = await reader.readexactly(length)
        except TimeoutError as error:
            raise PlanningLimitExceeded from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            status = await process.wait()
            if status == -signal.SIGPROF:
                raise PlanningLimitExceeded from error
            log.error("planning process ended", status=status)  # noqa: TRY400  # its own output says why
            remedy = "send the request again; the log of the planner has the details"
            raise Unavailable(
                f"the process that plans long requests ended with status {status}", remedy=remedy
            ) from error
        self._catalogue = catalogue
        return cast("Draft", pickle.loads(answer))  # noqa: S301  # written by our own process

    async def _start(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._catalogue = None
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.planner.process", stdin=PIPE, stdout=PIPE
            )
        return self._process

    def _stop_timer(self) -> None:
        if self._idle:
            self._idle.cancel()
            self._idle = None

    def _expire(self) -> None:
        self._kill()
        self._process = None

    def _kill(self) -> None:
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _end(self) -> None:
        self._kill()
        if self._process:
            await self._process.wait()
            self._process = None


def main() -> None:
    """Plans what comes from standard input until that ends.

    A timer of processor time ends the process in the midst of a plan, whatever code runs then.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; this one ends with its parent
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    embedded, catalogue = Embedded(standard_specs()), cast("Catalogue", {})
    while content := _read(source):
        request, news, seconds = pickle.loads(content)  # noqa: S301  # written by our parent
        catalogue = catalogue if news is None else news
        signal.setitimer(signal.ITIMER_PROF, seconds)
        draft = embedded.plan(request, catalogue)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer = pickle.dumps(draft)
        sink.write(_LENGTH.pack(len(answer)) + answer)
        sink.flush()


def _read(source: BinaryIO) -> bytes:
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return b""
    (length,) = _LENGTH.unpack(head)
    return source.read(length)


if __name__ == "__main__":
    main()
