"""Requests of agents as traces see them: by method and tool, never by content.

The package's own spans have in them what clients write: names of tools and methods, ids, and the words of errors.
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


class Observing:
    """A span for each request, beneath the one that its `_meta` names, else beneath that of HTTP.

    Args:
        tools: names of all there may be.
    """

    def __init__(self, tools: Iterable[str]) -> None:
        self._tools = frozenset(tools)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answers as what is behind it does."""
        method = ctx.method
        if ctx.request_id is None or method not in SPEC_CLIENT_METHODS:
            return await call_next(ctx)
        tool = self._tool(ctx.params or {}) if method == _CALL else ""
        facts = {names.MCP_METHOD: method} | ({names.OPERATION: names.EXECUTE_TOOL, names.TOOL: tool} if tool else {})
        named = names.span_name(method, tool)
        with tracing.use_parent(_asked_in(ctx)), tracing.start_span(named, facts, kind=SpanKind.SERVER) as span:
            result = await call_next(ctx)
            if isinstance(result, dict) and result.get("isError"):
                tracing.set_error(span, _TOOL_ERROR)
            return result

    def _tool(self, params: Mapping[str, Any]) -> str:
        name = params.get("name")
        return name if isinstance(name, str) and name in self._tools else ""


def _asked_in(ctx: ServerRequestContext[Any, Any]) -> SpanContext:
    meta: Mapping[str, Any] = ctx.meta or {}
    told = {name: value for name in tracing.HEADERS if isinstance(value := meta.get(name), str)}
    return tracing.extract(told) if told else INVALID_SPAN_CONTEXT
