"""Keeps child processes alive: starts them side by side, restarts those that die, stops them in order."""

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

from services.common.channel import opened
from services.common.errors import FailedPrecondition
from services.common.exit_status import MISSING_DEPENDENCY

log = structlog.get_logger(__name__)

STARTS = 3
"""How often a child may die before it has ever been ready."""

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
STEADY_SECONDS = 10.0
"""A child that lived so long is restarted without delay again."""

_ROOT = Path(__file__).parents[2]
_SERVING = health_pb2.HealthCheckResponse.SERVING
_PROMPT = (
    ("grpc.initial_reconnect_backoff_ms", 100),  # a child that starts is asked again soon
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True)
class Child:
    """A module to run as a process of its own."""

    name: str
    module: str
    addresses: Sequence[str] = ()
    """Its gRPC servers between services; it is ready when all of them say so."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Its environment, over this process's own."""
    essential: bool = True
    """False: the others do not wait for it for ever."""
    probes: Sequence[str] = ()
    """Where it says the same without TLS, of servers for anyone."""


Way = Callable[[str, Sequence[tuple[str, Any]]], grpc.aio.Channel]
"""Opens a channel to an address."""

Announce = Callable[[Mapping[str, int]], Awaitable[None]]
"""Given process ids by name, once all children are ready."""


async def supervise(
    stages: Sequence[Sequence[Child]],
    announce: Announce,
    stop: asyncio.Event,
    *,
    stop_seconds: float,
    patience_seconds: float = 60.0,
) -> None:
    """Runs children until told to stop. If cancelled, or if one cannot start, all are killed.

    Args:
        stages: the children, in the order in which they are stopped; those of one stage stop together.
        announce: called once, when all are ready for the first time, or all that are essential; without those that
            ended with MISSING_DEPENDENCY and are not essential.
        stop: set from outside.
        stop_seconds: how long each child may take to end after SIGTERM.
        patience_seconds: how long those that are not essential may keep the others from being announced.

    Raises:
        FailedPrecondition: a child died again and again before it was ready.
    """
    keepers = [[Keeper(child) for child in stage] for stage in stages]
    try:
        async with asyncio.TaskGroup() as group:
            for keeper in chain(*keepers):
                group.create_task(keeper.keep(), name=f"keep-{keeper.name}")
            announcing = group.create_task(_when_ready(list(chain(*keepers)), announce, patience_seconds))
            await stop.wait()
            announcing.cancel()
            for stage in keepers:
                await _stopped(stage, stop_seconds)
    except* FailedPrecondition as errors:
        first = errors.exceptions[0]
    else:
        return
    raise first


async def _stopped(keepers: Sequence["Keeper"], seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        for keeper in keepers:
            group.create_task(keeper.stop(seconds))


async def _when_ready(keepers: Sequence["Keeper"], announce: Announce, patience_seconds: float) -> None:
    for keeper in keepers:
        if keeper.essential:
            await keeper.ready.wait()
    try:
        async with asyncio.timeout(patience_seconds):
            for keeper in keepers:
                await keeper.started_or_abandoned()
    except TimeoutError:
        late = [keeper.name for keeper in keepers if not (keeper.ready.is_set() or keeper.abandoned.is_set())]
        log.warning("not ready yet, going on without", children=late)
    await announce({keeper.name: keeper.pid for keeper in keepers if not keeper.abandoned.is_set()})


class Keeper:
    """One child, over all its lives."""

    def __init__(self, child: Child) -> None:
        self.name = child.name
        self.essential = child.essential
        self.pid = 0
        self.ready = asyncio.Event()
        """Set once, when it has been ready for the first time."""
        self.abandoned = asyncio.Event()
        """Set once, when it cannot start for want of a package and is not essential: it is not started again."""
        self._child = child
        self._process: Process | None = None
        self._stopping, self._ended = asyncio.Event(), asyncio.Event()

    async def keep(self) -> None:
        """Lives and dies and lives again, until stopped."""
        deaths, delay = 0, FIRST_DELAY
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                status = await self._live()
                if self._stopping.is_set():
                    return
                if status == MISSING_DEPENDENCY and not self.essential:
                    self.abandoned.set()
                    return
                deaths += 1
                if not self.ready.is_set() and deaths == STARTS:
                    raise self._cannot_start(status)
                delay = FIRST_DELAY if time.monotonic() - began >= STEADY_SECONDS else delay
                log.warning("child died, restarting", child=self.name, restarts=deaths, delay=delay, **_how(status))
                await self._pause(delay)
                delay = min(2 * delay, LONGEST_DELAY)
        finally:
            self._ended.set()

    async def started_or_abandoned(self) -> None:
        """Waits until it has been ready for the first time, or will not be started again."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.ready, self.abandoned)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self, seconds: float) -> None:
        """SIGTERM, and SIGKILL if it does not end in time."""
        self._stopping.set()
        self._terminate()
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            log.warning("child does not end, killing it", child=self.name, after_seconds=seconds)
            self._kill()
            await self._ended.wait()

    async def _live(self) -> int:
        async with self._started() as process, asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(), name=f"watch-{self.name}")
            status = await process.wait()
            watching.cancel()
        return status

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Process]:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "services.local.parent_watch", self._child.module),
            stdin=PIPE,  # the leash: nobody else holds this end
            stdout=sys.stderr.fileno(),  # ours says one line only
            env=environment(self._child.settings),
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone
        )
        self.pid = process.pid
        if self._stopping.is_set():
            self._terminate()
        try:
            yield process
        finally:
            self._kill()
            await process.wait()

    async def _watch(self) -> None:
        """Waits for all its servers to say that they serve."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for address in self._child.addresses:
                group.create_task(until_serving(address))
            for address in self._child.probes:
                group.create_task(until_serving(address, grpc.aio.insecure_channel))
        log.info("child ready", child=self.name, pid=self.pid, seconds=round(time.monotonic() - began, 2))
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
        if self._process:
            with suppress(ProcessLookupError, PermissionError):  # the latter is how macOS says that all have ended
                os.killpg(self._process.pid, signal.SIGKILL)  # and whatever it started

    def _cannot_start(self, status: int) -> FailedPrecondition:
        how = " ".join(f"{key} {value}" for key, value in _how(status).items())
        return FailedPrecondition(
            f"{self.name} cannot start: {how}, {STARTS} times",
            remedy=f"what it said stands above; alone it starts with: python -m {self._child.module}",
        )


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: ours and its own, and the modules that we run on, wherever we were started.

    gRPC's core stays silent unless asked: it tells of every connection that closes, in lines of its own form.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), settings.get("PYTHONPATH", os.environ.get("PYTHONPATH")))))
    return {"GRPC_VERBOSITY": "ERROR", **os.environ, **settings, "PYTHONPATH": path}


async def until_serving(address: str, way: Way = opened) -> None:
    """Waits until the server at an address is there and says that it serves."""
    async with way(address, _PROMPT) as channel:
        while True:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                async for reply in stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True):  # type: ignore[attr-defined]  # missing in the types only
                    if reply.status == _SERVING:
                        return
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise
                await asyncio.sleep(FIRST_DELAY)  # it died, or was about to


def _how(status: int) -> dict[str, str | int]:
    return {"exit_status": status} if status >= 0 else {"signal": signal.Signals(-status).name}
