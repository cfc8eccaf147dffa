"""MCP server on standard input and output that forwards requests to a gateway."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import structlog
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from gateway.cli.connect import gateway
from gateway.cli.errors import Problem
from gateway.client import AsyncHuggingGPT, HuggingGPTError
from gateway.client.connection import Connection
from gateway.mcp import rendering
from gateway.mcp.bridge.folders import Context, Folders, roots, roots_request
from gateway.mcp.bridge.local_files import LocalFiles, uses_local_files, with_local_files
from services.common.errors import InvalidRequest, ServiceError, Unavailable

log = structlog.get_logger(__name__)


SILENCE_SECONDS = 60.0
"""Timeout of a silent stream; the gateway sends comments more often."""


class Bridge:
    """Tools and resources of a gateway, extended with local files.

    Args:
        client: MCP client of the gateway.
        gateway: HTTP client of the same gateway, for uploads and downloads.
        folders: allowed folders in addition to the client's roots.
    """

    def __init__(self, client: Client, gateway: AsyncHuggingGPT, folders: Sequence[Path]) -> None:
        self._client = client
        self._gateway = gateway
        self._folders = folders

    def server(self, version: str) -> Server[Any]:
        return Server(
            "hugginggpt",
            version=version,
            title="HuggingGPT",
            instructions=self._client.instructions,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
        )

    async def list_tools(self, _context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        listed = await self._client.list_tools(cache_mode="refresh")
        return ListToolsResult(tools=[with_local_files(tool) for tool in listed.tools])

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        try:
            return await self._call(context, params)
        except ServiceError as error:
            return rendering.error_result(error)
        except HuggingGPTError as error:
            return rendering.error_result(InvalidRequest(error.message, reason=error.code, remedy=error.remedy))
        except MCPError as error:
            return rendering.error_result(
                Unavailable(f"the gateway failed: {error.message}", remedy="check that it is running")
            )
        except Exception:
            log.exception("unexpected error")
            return rendering.error_result(ServiceError("internal error", remedy="try again"))

    async def list_resources(self, _context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return await self._client.list_resources(cursor=params.cursor if params else None)

    async def list_templates(
        self, _context: Context, _params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return await self._client.list_resource_templates()

    async def read_resource(self, _context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await self._client.read_resource(params.uri)

    async def _call(self, context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        arguments = params.arguments or {}
        if not uses_local_files(params.name, arguments):
            return await self._forward(context, params.name, arguments)
        if request := roots_request(context, params):
            return request
        folders = Folders([*self._folders, *await roots(context, params)])
        local_files = LocalFiles(self._gateway, folders)
        folder = local_files.folder(arguments)
        result = await self._forward(context, params.name, await local_files.upload(params.name, arguments))
        return await local_files.save(result, folder) if folder else result

    async def _forward(self, context: Context, name: str, arguments: dict[str, Any]) -> CallToolResult:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            await context.session.report_progress(progress, total, message)

        return await self._client.call_tool(name, arguments, progress_callback=report)


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
