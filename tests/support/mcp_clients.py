"""Clients of a gateway's MCP endpoint, from the official MCP package."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

MODES = ("legacy", "2026-07-28")
"""Protocol versions: with the handshake of 2025-11-25, and without handshake."""


@asynccontextmanager
async def opened_client(port: int, *, headers: Mapping[str, str] | None = None, **more: Any) -> AsyncIterator[Client]:
    """Connects a client to the gateway at a port."""
    async with httpx2.AsyncClient(headers=dict(headers or {}), timeout=30, trust_env=False) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
        async with Client(transport, **more) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    """Text contents of a tool result."""
    return "\n".join(block.text for block in result.content if block.type == "text")
