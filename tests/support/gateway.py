"""A real gateway on free ports with scripted services, and HTTP and gRPC clients."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
from fastapi import FastAPI

from gateway.__main__ import gateway as serve_gateway
from gateway.settings import Settings
from protos.hugginggpt.internal.v1 import orchestrator_pb2, orchestrator_pb2_grpc, selector_pb2, selector_pb2_grpc
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from services.common.server import serving
from tests.fakes import ScriptedOrchestrator, ScriptedSelector


@dataclass(frozen=True)
class GatewayUnderTest:
    """A running gateway, its clients and its scripted services."""

    app: FastAPI
    http: httpx.AsyncClient
    grpc: Any
    orchestrator: ScriptedOrchestrator
    selector: ScriptedSelector
    store: ArtifactStore
    http_port: int
    grpc_port: int

    async def ask(self, request: str = "do it", **fields: Any) -> httpx.Response:
        """Posts a run as JSON; the field `headers` becomes the HTTP headers."""
        headers = fields.pop("headers", {})
        return await self.http.post("/v1/runs", json={"request": request, **fields}, headers=headers)


@asynccontextmanager
async def start_gateway(
    folder: Path,
    orchestrator: ScriptedOrchestrator | None = None,
    selector: ScriptedSelector | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[GatewayUnderTest]:
    """Starts the gateway, its scripted services and its clients.

    Args:
        folder: Receives artifacts and the database.
        orchestrator: Scripted orchestrator; a new one by default.
        selector: Scripted selector; a new one by default.
        settings: Gateway settings that override the defaults of tests.
    """
    orchestrator, selector = orchestrator or ScriptedOrchestrator(), selector or ScriptedSelector()
    async with AsyncExitStack() as stack:
        runs = await stack.enter_async_context(
            serving(
                partial(orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server, orchestrator),
                orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"],
            )
        )
        models = await stack.enter_async_context(
            serving(
                partial(selector_pb2_grpc.add_SelectorServiceServicer_to_server, selector),
                selector_pb2.DESCRIPTOR.services_by_name["SelectorService"],
            )
        )
        given = {
            "listen": "127.0.0.1:0",
            "http_listen": "127.0.0.1:0",
            "orchestrator": f"127.0.0.1:{runs.port}",
            "selector": f"127.0.0.1:{models.port}",
            "ARTIFACTS_URL": (folder / "artifacts").as_uri(),
            "database": str(folder / "gateway.sqlite"),
            "DRAIN_SECONDS": 1.0,
            **(settings or {}),
        }
        running = await stack.enter_async_context(serve_gateway(Settings.model_validate(given)))
        base = f"http://127.0.0.1:{running.http_port}"
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=base, timeout=10, trust_env=False))
        channel = await stack.enter_async_context(dial(f"127.0.0.1:{running.grpc.port}"))
        yield GatewayUnderTest(
            running.app,
            http,
            GatewayServiceStub(channel),
            orchestrator,
            selector,
            ArtifactStore.open(given["ARTIFACTS_URL"]),
            running.http_port,
            running.grpc.port,
        )


async def rpc_error(call: Any) -> grpc.aio.AioRpcError:
    """Awaits a call or reads a stream to its end, and returns the error with which it fails."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call succeeded")
