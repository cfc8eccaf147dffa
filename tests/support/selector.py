"""A selector for tests, and the folder in which it discovers experts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2, task_pb2
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import call_context
from services.common.channel import connect
from services.selector.__main__ import selector as serve_selector
from services.selector.discovery import PollIntervals
from services.selector.settings import Settings

FAST = PollIntervals(between=0.05, again=0.02, deadline=5)


class SelectorUnderTest:
    """A running selector, its client, and the folder in which it discovers experts."""

    def __init__(self, address: str, channel: grpc.aio.Channel, folder: Path) -> None:
        self.address = address
        self.stub = rpc.SelectorServiceStub(channel)
        self._folder = folder

    def add(self, name: str, address: str) -> None:
        (self._folder / f"{name}.address").write_text(f"{address}\n")

    def remove(self, name: str) -> None:
        (self._folder / f"{name}.address").unlink()

    async def tasks(self) -> dict[str, task_pb2.CatalogTask]:
        reply = await self.stub.ListTasks(gateway_pb2.ListTasksRequest(), timeout=5)
        return {task.spec.name: task for task in reply.tasks}

    async def experts(self) -> dict[str, selector_pb2.Expert]:
        reply = await self.stub.ListExperts(selector_pb2.ListExpertsRequest(), timeout=5)
        return {expert.name: expert for expert in reply.experts}

    async def select(self, task: Task, caller: Caller | None = None, **fields: object) -> selector_pb2.SelectResponse:
        request = selector_pb2.SelectRequest(task=task, **fields)  # type: ignore[arg-type]  # fields of the message
        with call_context.use_caller(caller or Caller()):
            return await self.stub.Select(request, timeout=5, metadata=call_context.metadata() if caller else None)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Waits until a condition is true, checking after each change of the catalog."""
        async with asyncio.timeout(10):
            async for _ in self.stub.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=20):
                if await condition():
                    return

    async def until_planned(self, *names: str) -> None:
        async def planned() -> bool:
            return set(names) == set(await self.tasks())

        await self.until(planned)


StartSelector = Callable[..., AbstractAsyncContextManager[SelectorUnderTest]]


def selector_starter(home: Path) -> StartSelector:
    """Returns a function that starts selectors which share an artifact store and a discovery folder."""
    folder = home / "experts"
    folder.mkdir(exist_ok=True)

    @asynccontextmanager
    async def start(
        experts: str = "", forget_seconds: float = 60, expert_descriptions: str = ""
    ) -> AsyncIterator[SelectorUnderTest]:
        settings = Settings(
            listen="127.0.0.1:0",
            drain_seconds=5,
            experts=",".join(filter(None, (str(folder), experts))),
            artifacts_url=(home / "artifacts").as_uri(),
            forget_seconds=forget_seconds,
            expert_descriptions=expert_descriptions,
        )
        async with serve_selector(settings, FAST) as running:
            address = f"127.0.0.1:{running.port}"
            async with connect(address) as channel:
                yield SelectorUnderTest(address, channel, folder)

    return start
