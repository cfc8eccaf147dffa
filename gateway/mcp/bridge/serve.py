"""hugginggpt mcp: connects an MCP client to a gateway."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server

from gateway.cli.connect import gateway
from gateway.cli.errors import Problem
from gateway.client import AsyncHuggingGPT, HuggingGPTError
from gateway.client.connection import Connection
from gateway.mcp.bridge.bridge import Bridge

SILENCE_SECONDS = 60.0
"""Timeout of a silent stream; the gateway sends comments more often."""


def serve(url: str | None, api_key: str | None, folders: Sequence[Path]) -> None:
    """Serves MCP until standard input ends.

    Raises:
        Problem: there is no gateway, or it rejects the API key.
    """
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # its warnings contain data of clients
    try:
        with gateway(url, _print_status) as client:
            asyncio.run(_serve(client.url, api_key, folders))
    except HuggingGPTError as error:
        raise Problem.of(error) from error


async def _serve(url: str, api_key: str | None, folders: Sequence[Path]) -> None:
    connection = Connection.to(url, api_key, verify=True)
    settings = connection.settings()
    timeout = httpx2.Timeout(SILENCE_SECONDS)
    async with (
        AsyncHuggingGPT(url, api_key) as http_client,
        httpx2.AsyncClient(headers=settings["headers"], trust_env=settings["trust_env"], timeout=timeout) as http,
    ):
        await http_client.files(limit=1)  # its error for a rejected key is clearer than that of the protocol
        async with Client(streamable_http_client(f"{connection.url}/mcp", http_client=http)) as client:
            server = Bridge(client, http_client, folders).server(version("hugginggpt"))
            async with stdio_server() as (receiving, sending):
                await server.run(receiving, sending, server.create_initialization_options())


def _print_status(status: str) -> None:
    if status:
        sys.stderr.write(f"{status}\n")
