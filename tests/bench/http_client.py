"""HTTP/1.1 as bare as can be: the client is not what is measured."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """What a server said, headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """To a server on this machine; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._reader = reader
        self._writer = writer
        self._host = f"localhost:{port}"

    async def get(self, path: str) -> bytes:
        """The body.

        Raises:
            RuntimeError: the request was refused.
        """
        self._ask("GET", path)
        return _accepted(await self._answer())

    async def post(self, path: str, body: bytes, prefer: str = "") -> bytes:
        """As get, with JSON."""
        return _accepted(await self.answered(path, body, prefer))

    async def answered(self, path: str, body: bytes, prefer: str = "", kind: str = "application/json") -> Answer:
        """What is said to a POST, be it a refusal."""
        self._ask("POST", path, f"content-type: {kind}\r\nprefer: {prefer}\r\ncontent-length: {len(body)}\r\n")
        self._writer.write(body)
        return await self._answer()

    async def stream(self, path: str) -> None:
        """Begins to read events; comes back after the first."""
        self._ask("GET", path)
        await self._reader.readuntil(b"run_accepted")

    def close(self) -> None:
        self._writer.transport.abort()

    def _ask(self, method: str, path: str, more: str = "") -> None:
        self._writer.write(f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n{more}\r\n".encode())

    async def _answer(self) -> Answer:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().strip().split("\r\n")
        headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(first.split()[1]), headers, body)


def _accepted(answer: Answer) -> bytes:
    if answer.status // 100 != 2:
        raise RuntimeError(f"the gateway refused a request of the benchmark: {answer}")
    return answer.body


async def opened(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port), port)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    connection = await opened(port)
    try:
        yield connection
    finally:
        connection.close()
