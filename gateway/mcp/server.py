"""MCP server: tools and resources as a route of the gateway.

It is stateless, so any gateway replica can answer any request. It supports the protocol versions 2025-11-25 (with
handshake) and 2026-07-28 (without).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog
from fastapi import APIRouter
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
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
from mcp_types.methods import SPEC_CLIENT_METHODS
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext, SpanKind
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.http.artifact_routes import request_site
from gateway.http.json_body import JSON_BYTES
from gateway.mcp import rendering
from gateway.mcp.resources import Resources
from gateway.mcp.tool_definitions import INSTRUCTIONS
from gateway.mcp.tool_handlers import Call, ToolHandlers
from protos.hugginggpt import semantic_conventions as names
from services.common import tracing
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)

PATH = "/mcp"

_CALL = "tools/call"
_TOOL_ERROR = "tool_error"

Context = ServerRequestContext[Any, Any]


class McpServer:
    """Route POST /mcp."""

    def __init__(self, version: str, handlers: ToolHandlers, resources: Resources) -> None:
        self._handlers = handlers
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
        server.middleware = [TracingMiddleware(handlers.names)]
        self._sessions = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=JSON_BYTES)

    def router(self) -> APIRouter:
        router = APIRouter()
        router.routes.append(Route(PATH, endpoint=_Endpoint(self._sessions), methods=["POST"], include_in_schema=False))
        return router

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves requests until the block exits."""
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # its warnings contain data of clients
        started, stopping = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(self._serve(started, stopping), name="mcp")
        await started.wait()
        try:
            yield
        finally:
            stopping.set()
            await serving
            await self._handlers.cancellations_sent()

    async def _serve(self, started: asyncio.Event, stopping: asyncio.Event) -> None:
        """Runs the session manager in one task, which must both enter and leave its context."""
        async with self._sessions.run():
            started.set()
            await stopping.wait()

    async def list_tools(self, _context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        with _ProtocolErrors():
            return ListToolsResult(tools=await self._handlers.tools())

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        async def report(number: float, message: str) -> None:
            await context.session.report_progress(number, message=message)

        call = Call(params.arguments or {}, _site(context), report)
        try:
            return await self._handlers.call(params.name, call)
        except Exception:
            log.exception("unexpected error")
            return rendering.error_result(ServiceError("internal error", remedy="try again, or read the gateway's log"))

    async def list_resources(self, _context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        with _ProtocolErrors():
            return await self._resources.page((params and params.cursor) or "")

    async def list_templates(
        self, _context: Context, _params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return self._resources.templates()

    async def read_resource(self, context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        with _ProtocolErrors():
            return await self._resources.read(params.uri, _site(context))


class _Endpoint:
    """ASGI application as an object, because Route would call a function as a request handler."""

    path = PATH

    def __init__(self, sessions: StreamableHTTPSessionManager) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # name of the route in the log
        await self._sessions.handle_request(scope, receive, send)


class _ProtocolErrors:
    """Converts errors of the block to protocol errors, for methods whose results cannot contain errors."""

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ServiceError):
            data = {"reason": error.reason, "remedy": rendering.remedy_for_agents(error.remedy)}
            raise MCPError(INVALID_PARAMS, error.message, data) from None
        if isinstance(error, Exception):
            log.error("unexpected error", exc_info=error)
            raise MCPError(INTERNAL_ERROR, "internal error") from None


def _site(context: Context) -> str:
    return request_site(cast("Request", context.request))


def _no_headers(_name: str) -> None:
    """No tool repeats an argument in a header."""


class TracingMiddleware:
    """Starts a span for each request, as a child of the span in its `_meta`, otherwise of the HTTP request's.

    They have method and tool but no content. The spans of the mcp package contain data of clients: names of tools and
    methods, ids, and error messages.

    Args:
        tools: names of all tools.
    """

    def __init__(self, tools: Iterable[str]) -> None:
        self._tools = frozenset(tools)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handles a request within a span."""
        method = ctx.method
        if ctx.request_id is None or method not in SPEC_CLIENT_METHODS:
            return await call_next(ctx)
        tool = self._tool(ctx.params or {}) if method == _CALL else ""
        attributes = {names.MCP_METHOD: method} | (
            {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: tool} if tool else {}
        )
        name = names.span_name(method, tool)
        with tracing.use_parent(_parent_span(ctx)), tracing.start_span(name, attributes, kind=SpanKind.SERVER) as span:
            result = await call_next(ctx)
            if isinstance(result, dict) and result.get("isError"):
                tracing.set_error(span, _TOOL_ERROR)
            return result

    def _tool(self, params: Mapping[str, Any]) -> str:
        name = params.get("name")
        return name if isinstance(name, str) and name in self._tools else ""


def _parent_span(ctx: ServerRequestContext[Any, Any]) -> SpanContext:
    meta: Mapping[str, Any] = ctx.meta or {}
    headers = {name: value for name in tracing.HEADERS if isinstance(value := meta.get(name), str)}
    return tracing.extract(headers) if headers else INVALID_SPAN_CONTEXT
