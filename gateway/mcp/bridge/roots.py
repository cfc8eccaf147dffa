"""Requests the client's roots, by the mechanism of its protocol version."""

from pathlib import Path
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp.types import CallToolRequestParams, InputRequiredResult, ListRootsRequest, ListRootsResult

from gateway.mcp.bridge.folders import path_of

_KEY = "roots"

Context = ServerRequestContext[Any, Any]


def roots_request(context: Context, params: CallToolRequestParams) -> InputRequiredResult | None:
    """Asks a client that accepts no requests to repeat the call with its roots; None if that is not needed."""
    if not _has_roots(context) or context.session.can_send_request or _KEY in (params.input_responses or {}):
        return None
    return InputRequiredResult(input_requests={_KEY: ListRootsRequest()})


async def roots(context: Context, params: CallToolRequestParams) -> list[Path]:
    """The client's folders."""
    if not _has_roots(context):
        return []
    listed = (params.input_responses or {}).get(_KEY)
    if context.session.can_send_request:
        related = ServerMessageMetadata(related_request_id=context.request_id)
        listed = await context.session.send_request(ListRootsRequest(), ListRootsResult, metadata=related)
    found = listed.roots if isinstance(listed, ListRootsResult) else []
    return [path_of(str(root.uri)) for root in found]


def _has_roots(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    return bool(capabilities and capabilities.roots)
