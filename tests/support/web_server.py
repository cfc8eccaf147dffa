"""HTTP server on loopback that sends exact bytes set by tests, with or without TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Reply = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def reply(content: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """A complete HTTP response; underscores in header names become hyphens."""
    lines = {"content-length": str(len(content)), **{key.replace("_", "-"): text for key, text in headers.items()}}
    head = "".join(f"{key}: {text}\r\n" for key, text in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + content


def redirect(location: str) -> bytes:
    return reply(status="302 Found", location=location)


@dataclass
class Web:
    """A running server and its received requests."""

    port: int
    replies: dict[str, Reply] = field(default_factory=dict)
    """Responses by path; * for any other path."""
    requests: list[str] = field(default_factory=list)
    """Heads of the requests in order."""
    names: list[str | None] = field(default_factory=list)
    """Server names that TLS clients requested."""


@asynccontextmanager
async def web_server(replies: Mapping[str, Reply], tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    """Serves until the block exits."""
    web = Web(0, dict(replies))

    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            web.requests.append(head)
            other = web.replies.get("*", reply(status="404 Not Found"))
            answer = web.replies.get(head.split(" ")[1].partition("?")[0], other)
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            serving.discard(asyncio.current_task())
            writer.close()

    if tls:
        tls.sni_callback = lambda _socket, name, _context: web.names.append(name)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    web.port = server.sockets[0].getsockname()[1]
    try:
        yield web
    finally:
        server.close()
        for task in filter(None, list(serving)):
            task.cancel()
