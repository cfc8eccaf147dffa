"""HTTP server on loopback with responses by path that tests set; records requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from tests.fakes.llm import http
from tests.fakes.llm.http import Request


@dataclass(frozen=True)
class Answer:
    """A response."""

    body: Any = None
    """Bytes or an iterator of bytes are sent unchanged; other values as JSON."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/octet-stream"


class Reset(Exception):
    """Raised by a body iterator to close the connection."""


Respond = Callable[[Request], Answer | Awaitable[Answer]]


class Web:
    """Answers with the first response whose path is part of the request's path, or 404; keeps connections alive."""

    def __init__(self) -> None:
        self.answers: dict[str, Respond] = {}
        self.requests: list[Request] = []
        self.url = ""
        self.connections = 0
        self.arrived: asyncio.Queue[Request] = asyncio.Queue()
        self.disconnects: asyncio.Queue[Request] = asyncio.Queue()
        """Requests whose client disconnected before the response."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    @asynccontextmanager
    async def serving(cls, port: int = 0) -> AsyncIterator[Self]:
        web = cls()
        await web.start(port)
        try:
            yield web
        finally:
            await web.stop()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=2**24)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stops listening and closes all connections."""
        if self._server:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def answer_with(self, path: str, body: Any = None, **fields: Any) -> None:
        """Answers every request for a path with the same response."""
        self.answers[path] = lambda _: Answer(body, **fields)

    def bodies(self, path: str) -> list[Any]:
        """JSON bodies of the requests for a path."""
        return [json.loads(request.body) for request in self.requests if path in request.path]

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        next_request = asyncio.create_task(http.received(reader))
        try:
            while True:
                request = await next_request
                next_request = asyncio.create_task(http.received(reader))
                await self._handle(request, writer, next_request)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a client may disconnect
        except Reset:
            writer.transport.abort()
        finally:
            next_request.cancel()
            writer.close()

    async def _handle(
        self, request: Request, writer: asyncio.StreamWriter, next_request: asyncio.Task[Request]
    ) -> None:
        """Answers, or cancels when the client disconnects; a client sends one request at a time."""
        self.requests.append(request)
        self.arrived.put_nowait(request)
        answering = asyncio.create_task(self._respond(writer, request))
        try:
            await asyncio.wait({answering, next_request}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.disconnects.put_nowait(request)
                await next_request
            await answering
        finally:
            answering.cancel()

    async def _respond(self, writer: asyncio.StreamWriter, request: Request) -> None:
        await _send(writer, await self._answer(request))

    async def _answer(self, request: Request) -> Answer:
        respond = next((respond for path, respond in self.answers.items() if path in request.path), None)
        if respond is None:
            return Answer({"error": "there is nothing here"}, status=404)
        answer = respond(request)
        return answer if isinstance(answer, Answer) else await answer


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    streamed = isinstance(answer.body, AsyncIterator)
    media_type = answer.media_type if streamed or isinstance(answer.body, bytes) else "application/json"
    await http.send_head(writer, answer.status, media_type, {"Connection": "keep-alive", **answer.headers})
    if streamed:
        async for chunk in answer.body:
            await http.send(writer, chunk)
    elif content := answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode():
        await http.send(writer, content)
    await http.send(writer, b"")
