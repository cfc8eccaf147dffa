"""A proxy that repeatedly cuts the connections between a client and a server."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

_ID = re.compile(rb"\nid: \d+\n.*?\n\n", re.DOTALL)


@dataclass
class CuttingProxy:
    """A running proxy: its address for clients, and counts of cuts and connections."""

    url: str
    cuts: int = 0
    connections: int = 0


CutPosition = Callable[[bytes], int | None]
"""Returns the number of bytes after which to cut a connection, given the bytes from the server so far; None to wait."""


def after_first_event(received: bytes) -> int | None:
    """Cuts after the first complete event of a stream."""
    found = _ID.search(received)
    return found.end() if found else None


def within_second_event(received: bytes) -> int | None:
    """Cuts within the second event of a stream."""
    found = list(_ID.finditer(received))
    return found[1].end() - 10 if len(found) > 1 else None


def after_bytes(count: int) -> CutPosition:
    return lambda received: count if len(received) > count else None


@asynccontextmanager
async def cutting_proxy(port: int, cut_position: CutPosition, *, times: int = 1_000_000) -> AsyncIterator[CuttingProxy]:
    """Opens a proxy to a port of this machine.

    Args:
        port: Port of the server.
        cut_position: Returns the number of bytes after which to cut a connection.
        times: Maximum number of cuts.
    """
    proxy = CuttingProxy("")

    async def forward_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client's request with the server's own address in the Host header, since the server rejects others."""
        proxy_host, server_host = proxy.url.removeprefix("http://").encode(), f"127.0.0.1:{port}".encode()
        while data := await reader.read(65536):
            writer.write(data.replace(b"Host: " + proxy_host, b"Host: " + server_host))
            await writer.drain()
        writer.close()  # the client disconnected

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.connections += 1
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        sending = asyncio.create_task(forward_request(reader, server_writer))
        received, forwarded = b"", 0
        try:
            while data := await server_reader.read(65536):
                received += data
                end = cut_position(received) if proxy.cuts < times else None
                writer.write(received[forwarded:end])
                await writer.drain()
                forwarded = len(received)
                if end is not None:
                    proxy.cuts += 1
                    return
        finally:
            sending.cancel()
            for each in (server_writer, writer):
                each.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield proxy
