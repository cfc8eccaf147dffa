"""A proxy that repeatedly cuts the connections between a client and a server."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

_ID = re.compile(rb"\nid: \d+\n.*?\n\n", re.DOTALL)


@dataclass
class Wire:
    """Address for clients."""

    url: str
    cuts: int = 0
    connections: int = 0


Due = Callable[[bytes], int | None]
"""Returns the number of bytes after which to cut a connection, given the bytes from the server so far; None to wait."""


def after_an_event(seen: bytes) -> int | None:
    """Cuts after the first complete event of a stream."""
    found = _ID.search(seen)
    return found.end() if found else None


def within_an_event(seen: bytes) -> int | None:
    """Cuts within the second event of a stream."""
    found = list(_ID.finditer(seen))
    return found[1].end() - 10 if len(found) > 1 else None


def after_bytes(count: int) -> Due:
    return lambda seen: count if len(seen) > count else None


@asynccontextmanager
async def cutting(port: int, due: Due, *, times: int = 1_000_000) -> AsyncIterator[Wire]:
    """Opens a proxy to a port of this machine.

    Args:
        port: Port of the server.
        due: Decides when to cut a connection.
        times: Maximum number of cuts.
    """
    wire = Wire("")

    async def up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client's request with the server's own address in the Host header, since the server rejects others."""
        ours, theirs = wire.url.removeprefix("http://").encode(), f"127.0.0.1:{port}".encode()
        while data := await reader.read(65536):
            writer.write(data.replace(b"Host: " + ours, b"Host: " + theirs))
            await writer.drain()
        writer.close()  # the client disconnected

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire.connections += 1
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        sending = asyncio.create_task(up(reader, server_writer))
        seen, passed = b"", 0
        try:
            while data := await server_reader.read(65536):
                seen += data
                end = due(seen) if wire.cuts < times else None
                writer.write(seen[passed:end])
                await writer.drain()
                passed = len(seen)
                if end is not None:
                    wire.cuts += 1
                    return
        finally:
            sending.cancel()
            for each in (server_writer, writer):
                each.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        wire.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield wire
