"""Catalogue of available tasks, loaded from the selector and updated by its stream of changes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import structlog

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2
from services.common.errors import Unavailable
from services.common.supervision import supervise
from services.planner.task_spec import Catalogue, OfferedTasks, Spec

log = structlog.get_logger(__name__)

FIRST_SECONDS = 5.0
"""How long the first plan waits for the catalogue."""

FRESH_SECONDS = 1.0
"""Maximum age of the catalogue while the stream of changes is broken."""

REFRESH_SECONDS = 1.0
"""How long a plan waits for a newer catalogue if there is an older one."""

WATCH_SECONDS = 300.0
"""Maximum duration of one stream of changes."""

RETRY_SECONDS = 0.5
"""Pause before a broken stream of changes is reopened."""


class TaskCatalog:
    """The selector's catalogue; while the stream of changes is open, reading it needs no call."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._selector = rpc.SelectorServiceStub(channel)
        self._revision = ""
        self._tasks: Catalogue | None = None
        self.known = asyncio.Event()
        """Set once the catalogue is loaded."""
        self._is_watched = False
        self._confirmed_at = float("-inf")
        self._load_lock = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def watching(cls, channel: grpc.aio.Channel) -> AsyncIterator["TaskCatalog"]:
        """Opens a catalogue that is updated within the block."""
        catalog = cls(channel)
        watch = asyncio.create_task(supervise(catalog._watch_repeatedly, name="catalogue watch"), name="catalogue")
        try:
            yield catalog
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def tasks(self) -> Catalogue:
        """Returns the available tasks, at most about a second old while the selector is reachable.

        Raises:
            Unavailable: the selector has not answered yet.
        """
        if self._tasks is None or not self._fresh():
            await self._refresh()
        if self._tasks is None:
            raise Unavailable(
                "the planner has not loaded the catalogue of tasks yet: the selector does not answer",
                remedy="try again; if it persists, check the selector and PLANNER_SELECTOR",
            )
        return self._tasks

    def _fresh(self) -> bool:
        return self._is_watched or asyncio.get_running_loop().time() - self._confirmed_at < FRESH_SECONDS

    async def _refresh(self) -> None:
        timeout = FIRST_SECONDS if self._tasks is None else REFRESH_SECONDS
        async with self._load_lock:
            if self._tasks is not None and self._fresh():
                return
            try:
                await self._load(timeout)
            except grpc.aio.AioRpcError as error:
                log.warning("catalogue not refreshed", code=error.code().name, known=self._tasks is not None)

    async def _load(self, timeout: float) -> None:  # noqa: ASYNC109  # it becomes the call's deadline
        reply = await self._selector.ListTasks(
            gateway_pb2.ListTasksRequest(known_revision=self._revision), timeout=timeout
        )
        if self._tasks is None or not (reply.unchanged or reply.revision == self._revision):
            failing = {task.spec.name: tuple(task.experts) for task in reply.failing}
            self._tasks = OfferedTasks((Spec.from_proto(task.spec) for task in reply.tasks), failing)
            self.known.set()
            log.info("catalogue loaded", revision=reply.revision, tasks=len(self._tasks))
        self._revision = reply.revision
        self._confirmed_at = asyncio.get_running_loop().time()

    async def _watch_repeatedly(self) -> None:
        while True:
            try:
                await self._watch()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    log.info("catalogue watch failed", code=error.code().name)
            finally:
                self._is_watched = False
            await asyncio.sleep(RETRY_SECONDS)

    async def _watch(self) -> None:
        changes = self._selector.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=WATCH_SECONDS)
        async for change in changes:
            if change.revision != self._revision or self._tasks is None:
                self._is_watched = False
                async with self._load_lock:
                    await self._load(FIRST_SECONDS)
            self._is_watched = True
