import asyncio
import json
from typing import Any

import httpx

from gateway.client import Event
from gateway.client.streams import Reader
from gateway.core.run_stream import RunEventFeed
from gateway.http.sse import EventStream, event_frame
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEvent
from services.common.errors import CorruptData, Unavailable
from tests.fakes import ANSWERED


class QueuedCall:
    """An orchestrator's event stream, whose events the test puts into a queue."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[RunEvent | Exception] = asyncio.Queue()
        self.cancelled = False

    async def read(self) -> RunEvent:
        event = await self.events.get()
        if isinstance(event, Exception):
            raise event
        return event

    def cancel(self) -> None:
        self.cancelled = True


class Client:
    """An ASGI client that reads a response."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.got.put(message)

    async def body(self) -> bytes:
        """The next part of the body."""
        async with asyncio.timeout(5):
            while (message := await self.got.get())["type"] != "http.response.body":
                pass
        content: bytes = message["body"]
        return content


def started(call: QueuedCall, client: Client, heartbeat_seconds: float = 60) -> "asyncio.Task[None]":
    feed = RunEventFeed(call, lambda _run_id, _after: call)
    stream = EventStream(feed, heartbeat_seconds=heartbeat_seconds)
    return asyncio.create_task(stream({"type": "http"}, client.receive, client.send))


def event(number: int, kind: RunEvent) -> RunEvent:
    numbered_lines = RunEvent(run_id="r", sequence=number)
    numbered_lines.MergeFrom(kind)
    return numbered_lines


def test_event_frame_has_id_event_and_data() -> None:
    identity, name, data, *rest = (
        event_frame(event(3, RunEvent(answer_chunk=AnswerChunk(text="a\nb")))).decode().split("\n")
    )
    assert identity == "id: 3"
    assert name == "event: answer_chunk"
    assert rest == ["", ""]
    assert json.loads(data.removeprefix("data: "))["answer_chunk"] == {"text": "a\nb"}


async def test_idle_stream_sends_heartbeats_without_losing_events() -> None:
    call, client = QueuedCall(), Client()
    serving = started(call, client, heartbeat_seconds=0.001)
    assert await client.body() == b"retry: 1000\n\n"
    assert await client.body() == b": heartbeat\n\n"
    await call.events.put(event(1, ANSWERED[0]))
    await call.events.put(event(2, ANSWERED[1]))
    sent = b""
    while b"run_ended" not in sent:
        sent += await client.body()
    assert sent.replace(b": heartbeat\n\n", b"").count(b"id: ") == 2
    await serving
    assert call.cancelled


async def test_disconnect_ends_the_stream_at_once() -> None:
    call, client = QueuedCall(), Client()
    serving = started(call, client)
    await client.body()
    client.leaves.set()
    async with asyncio.timeout(5):
        await serving
    assert call.cancelled


async def test_permanent_error_ends_stream_with_problem_event() -> None:
    call, client = QueuedCall(), Client()
    serving = started(call, client)
    await client.body()
    await call.events.put(CorruptData("the journal is damaged", remedy="restore it"))
    name, data, *_ = (await client.body()).decode().split("\n")
    assert name == "event: problem"
    assert json.loads(data.removeprefix("data: "))["remedy"] == "restore it"
    await serving


async def test_transient_error_ends_stream_without_event() -> None:
    call, client = QueuedCall(), Client()
    serving = started(call, client)
    await client.body()
    await call.events.put(Unavailable("the run goes on elsewhere"))
    assert await client.body() == b": the run goes on elsewhere\n\n"
    await serving


async def test_duplicate_events_are_not_sent() -> None:
    call, client = QueuedCall(), Client()
    serving = started(call, client)
    await client.body()
    for number in (1, 1, 2, 1):
        await call.events.put(event(number, ANSWERED[0]))
    await call.events.put(event(3, ANSWERED[1]))
    sent = b""
    while b"run_ended" not in sent:
        sent += await client.body()
    assert [line for line in sent.decode().split("\n") if line.startswith("id: ")] == ["id: 1", "id: 2", "id: 3"]
    await serving


def test_unicode_line_separators_are_escaped() -> None:
    text = "a\nb\r\nc\u2028d\u2029e\x85f\x0b\x0c\x1c 😀"
    response = httpx.Response(200, content=event_frame(event(1, RunEvent(answer_chunk=AnswerChunk(text=text)))))
    reader = Reader(Event.of)
    (read,) = filter(None, map(reader.take, response.iter_lines()))
    assert read.body["text"] == text


async def test_closing_frame_of_transient_error_is_a_comment() -> None:
    call, client = QueuedCall(), Client()
    call.events.put_nowait(Unavailable("gone\n\nevent: run_ended\ndata: {}"))
    streaming = started(call, client)
    assert await client.body() == b"retry: 1000\n\n"
    assert await client.body() == b": gone event: run_ended data: {}\n\n"
    await streaming
