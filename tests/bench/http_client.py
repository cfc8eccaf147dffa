"""Minimal HTTP/1.1 client, which uses little CPU so that measurements are of the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """Response of a server; header names and values are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """Connection to a server on this machine, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._reader = reader
        self._writer = writer
        self._host = f"localhost:{port}"

    async def get(self, path: str) -> bytes:
        """Returns the body of a GET.

        Raises:
            RuntimeError: the status is not 2xx.
        """
        self._send("GET", path)
        return _body(await self._receive())

    async def post(self, path: str, body: bytes, prefer: str = "") -> bytes:
        """Returns the body of a POST of JSON.

        Raises:
            RuntimeError: the status is not 2xx.
        """
        return _body(await self.response(path, body, prefer))

    async def response(self, path: str, body: bytes, prefer: str = "", kind: str = "application/json") -> Answer:
        """Returns the response to a POST, whatever its status."""
        self._send("POST", path, f"content-type: {kind}\r\nprefer: {prefer}\r\ncontent-length: {len(body)}\r\n")
        self._writer.write(body)
        return await self._receive()

    async def stream(self, path: str) -> None:
        """Opens an event stream, and returns after its first event."""
        self._send("GET", path)
        await self._reader.readuntil(b"run_accepted")

    def close(self) -> None:
        self._writer.transport.abort()

    def _send(self, method: str, path: str, headers: str = "") -> None:
        self._writer.write(f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n{headers}\r\n".encode())

    async def _receive(self) -> Answer:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().strip().split("\r\n")
        headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(first.split()[1]), headers, body)


def _body(answer: Answer) -> bytes:
    if answer.status // 100 != 2:
        raise RuntimeError(f"the gateway refused a request of the benchmark: {answer}")
    return answer.body


async def open_connection(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port), port)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    connection = await open_connection(port)
    try:
        yield connection
    finally:
        connection.close()
