"""Supervisor of child processes: starts them concurrently, restarts those that exit, stops them in stages."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.channel import open_channel
from services.common.errors import MISSING_DEPENDENCY_STATUS, FailedPrecondition

log = structlog.get_logger(__name__)

STARTS = 3
"""How often a child may exit before it has ever been ready."""

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds before a restart; doubled each time."""
STABLE_SECONDS = 10.0
"""A child that has run this long is restarted after the first delay again."""

_ROOT = Path(__file__).parents[2]
_SERVING = health_pb2.HealthCheckResponse.SERVING
_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True)
class Child:
    """A Python module to run as a process."""

    name: str
    module: str
    addresses: Sequence[str] = ()
    """Addresses of its internal gRPC servers; it is ready when all of them are SERVING."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, in addition to those of this process."""
    essential: bool = True
    """With False the others do not wait for it without a time limit."""
    health_addresses: Sequence[str] = ()
    """Further health addresses, without TLS."""


OpenChannel = Callable[[str, Sequence[tuple[str, Any]]], grpc.aio.Channel]
"""Opens a channel to an address, with options."""

OnReady = Callable[[Mapping[str, int]], Awaitable[None]]
"""Receives process ids by name once all children are ready."""


async def supervise(
    stages: Sequence[Sequence[Child]],
    on_ready: OnReady,
    stop: asyncio.Event,
    *,
    stop_seconds: float,
    ready_seconds: float = 60.0,
) -> None:
    """Runs children until `stop` is set. If cancelled, or if a child cannot start, kills all.

    Args:
        stages: the children, in the order in which they are stopped; those of one stage stop together.
        on_ready: called once, when all children have been ready. Children that are not essential are left out if
            they exited with MISSING_DEPENDENCY_STATUS.
        stop: set by the caller.
        stop_seconds: time limit of each child between SIGTERM and SIGKILL.
        ready_seconds: time limit for children that are not essential to become ready.

    Raises:
        FailedPrecondition: a child exited repeatedly before it was ready.
    """
    supervisors = [[ChildSupervisor(child) for child in stage] for stage in stages]
    try:
        async with asyncio.TaskGroup() as group:
            for supervisor in chain(*supervisors):
                group.create_task(supervisor.run(), name=f"supervise-{supervisor.name}")
            readiness = group.create_task(_when_ready(list(chain(*supervisors)), on_ready, ready_seconds))
            await stop.wait()
            readiness.cancel()
            for stage in supervisors:
                await _stop_stage(stage, stop_seconds)
    except* FailedPrecondition as errors:
        first = errors.exceptions[0]
    else:
        return
    raise first


async def _stop_stage(supervisors: Sequence["ChildSupervisor"], seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        for supervisor in supervisors:
            group.create_task(supervisor.stop(seconds))


async def _when_ready(supervisors: Sequence["ChildSupervisor"], on_ready: OnReady, seconds: float) -> None:
    for supervisor in supervisors:
        if supervisor.essential:
            await supervisor.ready.wait()
    try:
        async with asyncio.timeout(seconds):
            for supervisor in supervisors:
                await supervisor.ready_or_abandoned()
    except TimeoutError:
        late = [each.name for each in supervisors if not (each.ready.is_set() or each.abandoned.is_set())]
        log.warning("children not ready in time", children=late)
    await on_ready({each.name: each.pid for each in supervisors if not each.abandoned.is_set()})


class ChildSupervisor:
    """Runs one child and restarts it when it exits."""

    def __init__(self, child: Child) -> None:
        self.name = child.name
        self.essential = child.essential
        self.pid = 0
        self.ready = asyncio.Event()
        """Set once, when the child has been ready for the first time."""
        self.abandoned = asyncio.Event()
        """Set once, when the child is not restarted because it lacks a package and is not essential."""
        self._child = child
        self._process: Process | None = None
        self._stopping, self._ended = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Runs the child until stop() is called.

        Raises:
            FailedPrecondition: it exited STARTS times before it was ready.
        """
        exits, delay = 0, FIRST_DELAY
        try:
            while not self._stopping.is_set():
                started = time.monotonic()
                status = await self._run_once()
                if self._stopping.is_set():
                    return
                if status == MISSING_DEPENDENCY_STATUS and not self.essential:
                    self.abandoned.set()
                    return
                exits += 1
                if not self.ready.is_set() and exits == STARTS:
                    raise self._cannot_start(status)
                delay = FIRST_DELAY if time.monotonic() - started >= STABLE_SECONDS else delay
                log.warning("child died, restarting", child=self.name, restarts=exits, delay=delay, **_cause(status))
                await self._pause(delay)
                delay = min(2 * delay, LONGEST_DELAY)
        finally:
            self._ended.set()

    async def ready_or_abandoned(self) -> None:
        """Waits until the child has been ready once, or will not be restarted."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.ready, self.abandoned)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self, seconds: float) -> None:
        """Stops the child by SIGTERM, and by SIGKILL after a time limit."""
        self._stopping.set()
        self._terminate()
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            log.warning("child did not stop in time, killing it", child=self.name, after_seconds=seconds)
            self._kill()
            await self._ended.wait()

    async def _run_once(self) -> int:
        """The exit status of one process."""
        async with self._started() as process, asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch_readiness(), name=f"watch-{self.name}")
            status = await process.wait()
            watching.cancel()
        return status

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Process]:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "services.local.parent_watch", self._child.module),
            stdin=PIPE,  # parent_watch ends the child when this end is closed
            stdout=sys.stderr.fileno(),  # this process's standard output has one line only
            env=environment(self._child.settings),
            start_new_session=True,  # a terminal's Ctrl-C reaches this process only
        )
        self.pid = process.pid
        if self._stopping.is_set():
            self._terminate()
        try:
            yield process
        finally:
            self._kill()
            await process.wait()

    async def _watch_readiness(self) -> None:
        """Waits until all servers of the child are SERVING."""
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for address in self._child.addresses:
                group.create_task(until_serving(address))
            for address in self._child.health_addresses:
                group.create_task(until_serving(address, grpc.aio.insecure_channel))
        log.info("child ready", child=self.name, pid=self.pid, seconds=round(time.monotonic() - started, 2))
        self.ready.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _terminate(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def _kill(self) -> None:
        """Kills the child and the processes that it started."""
        if self._process:
            with suppress(ProcessLookupError, PermissionError):  # macOS raises the latter once all have ended
                os.killpg(self._process.pid, signal.SIGKILL)

    def _cannot_start(self, status: int) -> FailedPrecondition:
        cause = " ".join(f"{key} {value}" for key, value in _cause(status).items())
        return FailedPrecondition(
            f"{self.name} cannot start: {cause}, {STARTS} times",
            remedy=f"see its output above; to start it alone: python -m {self._child.module}",
        )


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: this process's, the child's settings, and a PYTHONPATH with this repository.

    GRPC_VERBOSITY is ERROR by default, because gRPC's core logs every closed connection in a format of its own.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), settings.get("PYTHONPATH", os.environ.get("PYTHONPATH")))))
    return {"GRPC_VERBOSITY": "ERROR", **os.environ, **settings, "PYTHONPATH": path}


async def until_serving(address: str, open_: OpenChannel = open_channel) -> None:
    """Waits until the server at an address is SERVING."""
    async with open_(address, _CHANNEL_OPTIONS) as channel:
        while True:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                async for reply in stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True):  # type: ignore[attr-defined]  # missing in the types only
                    if reply.status == _SERVING:
                        return
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise
                await asyncio.sleep(FIRST_DELAY)  # the child has exited or is stopping


def _cause(status: int) -> dict[str, str | int]:
    return {"exit_status": status} if status >= 0 else {"signal": signal.Signals(-status).name}
