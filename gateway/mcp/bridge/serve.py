"""hugginggpt mcp: a bridge between an agent that starts it and a gateway."""

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
"""A stream that says nothing for so long, not even a comment, is broken."""


def serve(url: str | None, api_key: str | None, folders: Sequence[Path]) -> None:
    """Serves until standard input ends.

    Raises:
        Problem: there is no gateway, or it does not let us in.
    """
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # its warnings quote what clients send
    try:
        with gateway(url, _say) as there:
            asyncio.run(_bridged(there.url, api_key, folders))
    except HuggingGPTError as error:
        raise Problem.of(error) from error


async def _bridged(url: str, api_key: str | None, folders: Sequence[Path]) -> None:
    connection = Connection.to(url, api_key, verify=True)
    told = connection.settings()
    timeout = httpx2.Timeout(SILENCE_SECONDS)
    async with (
        AsyncHuggingGPT(url, api_key) as house,
        httpx2.AsyncClient(headers=told["headers"], trust_env=told["trust_env"], timeout=timeout) as http,
    ):
        await house.files(limit=1)  # tells more plainly than the protocol why we are not let in
        async with Client(streamable_http_client(f"{connection.url}/mcp", http_client=http)) as client:
            server = Bridge(client, house, folders).server(version("hugginggpt"))
            async with stdio_server() as (receiving, sending):
                await server.run(receiving, sending, server.create_initialization_options())


def _say(what: str) -> None:
    if what:
        sys.stderr.write(f"{what}\n")
