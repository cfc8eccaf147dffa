"""Gateway, planner, selector, orchestrator and responder as in a cluster: one process each, with an existing expert."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from services.local.ports import free_address
from tests.bench.processes import Running, service

SERVICE_NAMES = ("gateway", "planner", "selector", "orchestrator", "responder")


@asynccontextmanager
async def start_services(
    home: Path, expert: str, settings: Mapping[str, Mapping[str, str]]
) -> AsyncIterator[tuple[Mapping[str, Running], str]]:
    """Starts the services; yields their processes by name, and host:port of the gateway's HTTP API.

    Args:
        home: folder for journal and logs.
        expert: address of the expert.
        settings: additional settings by service name.
    """
    async with AsyncExitStack() as stack:

        async def start(name: str, **addresses: str) -> Running:
            module = name if name == "gateway" else f"services.{name}"
            own = {**addresses, **settings.get(name, {})}
            return await stack.enter_async_context(service(module, name.upper(), home, **own))

        selector = await start("selector", experts=expert)
        planner = await start("planner", selector=selector.address)
        responder = await start("responder")
        peers = {"planner": planner.address, "selector": selector.address, "responder": responder.address}
        orchestrator = await start("orchestrator", **peers)
        http = free_address("127.0.0.1:0", option="")
        gateway = await start("gateway", orchestrator=orchestrator.address, selector=selector.address, http_listen=http)
        started = (gateway, planner, selector, orchestrator, responder)
        yield dict(zip(SERVICE_NAMES, started, strict=True)), http
