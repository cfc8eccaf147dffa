"""Minimal HTTP/1.1 server functions: one request per connection, so that a client's disconnect is noticed at once."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


async def received(reader: asyncio.StreamReader) -> Request:
    """Reads one request; its body needs a Content-Length."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


async def send_head(
    writer: asyncio.StreamWriter, status: int, media_type: str, headers: Mapping[str, str] | None = None
) -> None:
    """Sends the head of a response whose body follows in chunks."""
    given = {"Content-Type": media_type, "Connection": "close", "Transfer-Encoding": "chunked"} | dict(headers or {})
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in given.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    await writer.drain()


async def send(writer: asyncio.StreamWriter, content: bytes) -> None:
    """Sends one chunk of the body; an empty chunk ends it."""
    writer.write(b"%x\r\n%b\r\n" % (len(content), content))
    await writer.drain()


async def send_event(writer: asyncio.StreamWriter, data: Any) -> None:
    """Sends one server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    await send(writer, f"data: {text}\n\n".encode())


async def send_json(
    writer: asyncio.StreamWriter, body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    """Sends a complete JSON response."""
    await send_head(writer, status, "application/json", headers)
    await send(writer, json.dumps(body).encode())
    await send(writer, b"")
