"""Scripted LLM server: chat completions, streamed or whole, and the list of models."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from tests.fakes.llm import http
from tests.fakes.llm.http_reply import Exchange, error, send_reply
from tests.fakes.llm.scripted_replies import ErrorReply, Script, ScriptedReply

_TOKEN = re.compile(r"\w+|[^\w\s]")
"""A token of this server."""


class ScriptedLLM:
    """A server with scripted replies.

    Args:
        script: The replies; after the end of a list the server answers 400.
        schema: False rejects response_format with 400.
        context: Maximum tokens of a prompt; earlier tokens are dropped silently.
        models: Names of the listed models.
    """

    def __init__(
        self,
        script: Script,
        *,
        schema: bool = True,
        context: int | None = None,
        models: Sequence[str] = ("scripted",),
    ) -> None:
        self.base_url = ""
        """Base URL with /v1."""
        self.requests: list[Any] = []
        """JSON bodies of chat completions, in the order of arrival."""
        self.keys: list[str] = []
        """Authorization headers of the requests."""
        self.arrivals: asyncio.Queue[Any] = asyncio.Queue()
        """The same bodies, as a queue for tests to wait on."""
        self.disconnects: asyncio.Queue[Any] = asyncio.Queue()
        """Bodies of the requests whose client disconnected early."""
        self.released = asyncio.Event()
        """Set by a test to resume stalled replies."""
        self.sent: list[tuple[float, str]] = []
        """Pieces of text streamed, with the time of the event loop."""
        self.active = self.max_active = 0
        """Active chat completions: current and maximum number."""
        self.connections = 0
        """Number of accepted connections."""
        self._next_reply = script if callable(script) else _in_order(script)
        self._schema = schema
        self._context = context
        self._models = models
        self._script_errors: list[Exception] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    @asynccontextmanager
    async def serving(
        cls,
        script: Script,
        *,
        schema: bool = True,
        context: int | None = None,
        models: Sequence[str] = ("scripted",),
        port: int = 0,
    ) -> AsyncIterator[Self]:
        """Serves on 127.0.0.1 until the block exits or `stop()`; raises the script's errors at exit."""
        scripted = cls(script, schema=schema, context=context, models=models)
        await scripted._start(port)
        try:
            yield scripted
        finally:
            await scripted.stop()
        if scripted._script_errors:
            raise scripted._script_errors[0]

    async def stop(self) -> None:
        """Stops listening and closes every connection."""
        if self._server:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=2**24)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await http.received(reader)
            if request.path.endswith("/chat/completions") and request.method == "POST":
                self.keys.append(request.headers.get("authorization", ""))
                await self._chat(json.loads(request.body), reader, writer)
            elif request.path.endswith("/v1/models"):
                listed = [{"id": name, "object": "model", "created": 0, "owned_by": "tests"} for name in self._models]
                await http.send_json(writer, {"object": "list", "data": listed})
            else:
                await http.send_json(writer, error("there is nothing here"), status=404)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # clients may disconnect
        finally:
            writer.close()

    async def _chat(self, body: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(body)
        self.arrivals.put_nowait(body)
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        answer = asyncio.ensure_future(self._answer(body, writer))
        disconnect = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((answer, disconnect), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self.disconnects.put_nowait(body)
        finally:
            self.active -= 1
            for task in (answer, disconnect):
                task.cancel()
            await asyncio.gather(answer, disconnect, return_exceptions=True)

    async def _answer(self, body: Any, writer: asyncio.StreamWriter) -> None:
        if "response_format" in body and not self._schema:
            refusal = error("this server does not support response_format", param="response_format")
            await http.send_json(writer, refusal, status=400)
            return
        visible, tokens = _truncate(body, self._context)
        try:
            reply = self._next_reply(visible)
        except Exception as failure:  # noqa: BLE001  # raised when the server ends
            self._script_errors.append(failure)
            reply = ErrorReply(400, body=error("the script is broken"))
        await send_reply(reply, Exchange(body, tokens, writer, self.released, self.sent))


def _in_order(script: Any) -> Any:
    replies = iter(script)
    ended = ErrorReply(400, body=error("the script has ended"))

    def next_reply(_: Any) -> ScriptedReply:
        return next(replies, ended)

    return next_reply


def _truncate(body: Any, context: int | None) -> tuple[Any, int]:
    """The request with its prompt truncated to the context, and the number of tokens."""
    messages, left = [], context if context is not None else 2**60
    for message in reversed(body["messages"]):
        text = _text_of(message["content"])
        found = list(_TOKEN.finditer(text))
        begin = found[-left].start() if 0 < left < len(found) else 0
        kept = text[begin:] if left > 0 else ""
        messages.append(message | {"content": kept if isinstance(message["content"], str) else message["content"]})
        left -= min(left, len(found))
    tokens = sum(len(_TOKEN.findall(_text_of(message["content"]))) for message in messages)
    return body | {"messages": messages[::-1]}, tokens


def _text_of(content: Any) -> str:
    """The text of a message, without its images."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
