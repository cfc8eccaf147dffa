"""The protocol's server: tools and resources, in the package's terms, as a route of the gateway.

Every request stands alone, so any gateway answers any: with the handshake of 2025-11-25, or without as of 2026-07-28.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog
from fastapi import APIRouter
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.mcp import rendering
from gateway.mcp.resources import Resources
from gateway.mcp.telemetry import Observing
from gateway.mcp.tool_definitions import INSTRUCTIONS
from gateway.mcp.tool_handlers import Call, Toolbox
from gateway.openai import links
from gateway.run_request import JSON_BYTES
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)

PATH = "/mcp"

Context = ServerRequestContext[Any, Any]


class McpServer:
    """POST /mcp."""

    def __init__(self, version: str, toolbox: Toolbox, resources: Resources) -> None:
        self._toolbox = toolbox
        self._resources = resources
        server: Server[Any] = Server(
            "hugginggpt",
            version=version,
            title="HuggingGPT",
            instructions=INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            get_tool_input_schema=_no_headers,
        )
        server.middleware = [Observing(toolbox.names)]
        self._sessions = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=JSON_BYTES)

    def router(self) -> APIRouter:
        router = APIRouter()
        router.routes.append(Route(PATH, endpoint=_Endpoint(self._sessions), methods=["POST"], include_in_schema=False))
        return router

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers within the block."""
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # its warnings quote what clients send
        up, over = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(self._serve(up, over), name="mcp")
        await up.wait()
        try:
            yield
        finally:
            over.set()
            await serving
            await self._toolbox.settled()

    async def _serve(self, up: asyncio.Event, over: asyncio.Event) -> None:
        """In a task of its own: the package has to end where it has begun."""
        async with self._sessions.run():
            up.set()
            await over.wait()

    async def list_tools(self, _context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        with _Telling():
            return ListToolsResult(tools=await self._toolbox.tools())

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        async def tell(number: float, words: str) -> None:
            await context.session.report_progress(number, message=words)

        call = Call(params.arguments or {}, _site(context), tell)
        try:
            return await self._toolbox.call(params.name, call)
        except Exception:
            log.exception("unexpected error")
            return rendering.refused(ServiceError("internal error", remedy="try again; the gateway's log says more"))

    async def list_resources(self, _context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        with _Telling():
            return await self._resources.page((params and params.cursor) or "")

    async def list_templates(
        self, _context: Context, _params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return self._resources.templates()

    async def read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        with _Telling():
            return await self._resources.read(params.uri, _site(context))


class _Endpoint:
    """An ASGI application: where a function stood, the route would take it for a handler of requests."""

    path = PATH

    def __init__(self, sessions: StreamableHTTPSessionManager) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # by which the log names it
        await self._sessions.handle_request(scope, receive, send)


class _Telling:
    """Errors within the block are the protocol's, where there is no result to put them into."""

    def __enter__(self) -> None:
        """Nothing is open."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ServiceError):
            data = {"reason": error.reason, "remedy": error.remedy}
            raise MCPError(INVALID_PARAMS, error.message, data) from None
        if isinstance(error, Exception):
            log.error("unexpected error", exc_info=error)
            raise MCPError(INTERNAL_ERROR, "internal error") from None


def _site(context: Context) -> str:
    return links.site(cast("Request", context.request))


def _no_headers(_name: str) -> None:
    """No argument of any tool is repeated in a header."""
