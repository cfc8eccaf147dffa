"""Gateway, planner, selector and responder in one process to save memory; each has its own gRPC server.

These services need little memory and CPU, unlike experts. The orchestrator is a process of its own, so that several can
share the runs.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.__main__ import gateway
from gateway.settings import Settings as GatewaySettings
from services.common.server import run
from services.common.settings import ServiceSettings
from services.planner.__main__ import planner
from services.planner.settings import Settings as PlannerSettings
from services.responder.__main__ import responder
from services.responder.settings import Settings as ResponderSettings
from services.selector.__main__ import selector
from services.selector.settings import Settings as SelectorSettings


@asynccontextmanager
async def services(_: ServiceSettings) -> AsyncIterator[None]:
    """Opens the services; the gateway closes first, while the others still serve its active runs."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(selector(SelectorSettings()))
        await stack.enter_async_context(planner(PlannerSettings()))
        await stack.enter_async_context(responder(ResponderSettings()))
        await stack.enter_async_context(gateway(GatewaySettings()))
        yield


if __name__ == "__main__":
    run("services", services, ServiceSettings)
