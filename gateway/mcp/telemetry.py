"""Trace spans of MCP requests, with method and tool but without content.

The spans of the mcp package contain data of clients: names of tools and methods, ids, and error messages.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.methods import SPEC_CLIENT_METHODS
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext, SpanKind

from protos.hugginggpt import semantic_conventions as names
from services.common import tracing

_CALL = "tools/call"
_TOOL_ERROR = "tool_error"


class TracingMiddleware:
    """Starts a span for each request, as a child of the span in its `_meta`, otherwise of the HTTP request's.

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
