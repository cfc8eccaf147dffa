"""The five services as in a cluster: a process each, beside an expert that is there already."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from services.local.ports import free_address
from tests.bench.processes import Running, service

ROOMS = ("gateway", "planner", "selector", "orchestrator", "responder")


@asynccontextmanager
async def rooms(
    home: Path, expert: str, settings: Mapping[str, Mapping[str, str]]
) -> AsyncIterator[tuple[Mapping[str, Running], str]]:
    """Gives them by name, once they serve, and host:port of the gateway's HTTP.

    Args:
        home: where journal and logs are.
        expert: its address.
        settings: by the name of who is told, over where the others are.
    """
    async with AsyncExitStack() as stack:

        async def start(name: str, **told: str) -> Running:
            module = name if name == "gateway" else f"services.{name}"
            told |= settings.get(name, {})
            return await stack.enter_async_context(service(module, name.upper(), home, **told))

        selector = await start("selector", experts=expert)
        planner = await start("planner", selector=selector.address)
        responder = await start("responder")
        peers = {"planner": planner.address, "selector": selector.address, "responder": responder.address}
        orchestrator = await start("orchestrator", **peers)
        http = free_address("127.0.0.1:0", option="")
        gateway = await start("gateway", orchestrator=orchestrator.address, selector=selector.address, http_listen=http)
        started = (gateway, planner, selector, orchestrator, responder)
        yield dict(zip(ROOMS, started, strict=True)), http
