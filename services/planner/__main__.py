"""Entry point of the planner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from protos.hugginggpt.internal.v1 import planner_pb2 as pb
from protos.hugginggpt.internal.v1 import planner_pb2_grpc as rpc
from services.common.channel import connect
from services.common.peer_health import monitor_peers
from services.common.server import RunningServer, run, serving
from services.llm.client import LLM
from services.planner.catalog import TaskCatalog
from services.planner.embedded.planning import Embedded
from services.planner.llm.planner import LLMPlanner
from services.planner.llm.prompt import PlanPromptBuilder
from services.planner.planner import Planner
from services.planner.process import PlanningProcess
from services.planner.servicer import PlannerServicer
from services.planner.settings import Settings
from services.planner.task_spec import standard_specs

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"]


@asynccontextmanager
async def planner(settings: Settings) -> AsyncIterator[RunningServer]:
    """Runs the planner's server for the block."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(connect(settings.selector))
        await stack.enter_async_context(monitor_peers({f"the selector at {settings.selector}": channel}))
        catalog = await stack.enter_async_context(TaskCatalog.watching(channel))
        llm = await _llm(settings, stack) if settings.llm.base_url else None
        process = PlanningProcess()
        stack.push_async_callback(process.close)
        servicer = PlannerServicer(Planner(catalog, Embedded(standard_specs()), llm, process))
        register = partial(rpc.add_PlannerServiceServicer_to_server, servicer)
        running = await stack.enter_async_context(
            serving(
                register,
                SERVICE,
                listen=settings.listen,
                drain_seconds=settings.drain_seconds,
                connection_seconds=settings.connection_seconds,
                health_listen=settings.health_listen,
            )
        )
        await stack.enter_async_context(_readiness(catalog, running))
        yield running


@asynccontextmanager
async def _readiness(catalog: TaskCatalog, running: RunningServer) -> AsyncIterator[None]:
    """Reports the server ready once the catalogue is loaded, within the block."""

    async def report_ready() -> None:
        await catalog.known.wait()
        await running.set_ready("readiness")

    await running.set_ready("readiness", ready=False)
    task = asyncio.create_task(report_ready(), name="readiness")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _llm(settings: Settings, stack: AsyncExitStack) -> LLMPlanner:
    llm = await stack.enter_async_context(LLM.open(settings.llm, role="planner"))
    return LLMPlanner(llm, PlanPromptBuilder(count=settings.demonstrations, variety=settings.variety))


if __name__ == "__main__":
    run("planner", planner, Settings)
