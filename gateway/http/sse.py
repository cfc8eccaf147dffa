"""Run events as server-sent events: id is the sequence number, event the event type, data the event as JSON."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.core.run_stream import RunEventFeed
from gateway.http.problem import problem
from gateway.json_encoder import dumps, encode
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import ServiceError, Unavailable

MEDIA_TYPE = "text/event-stream"

HEARTBEAT_SECONDS = 15.0
"""Longest silence on a stream; proxies close connections that are idle for longer."""

LastEventId = Annotated[
    str,
    Header(
        description="Sequence number of the last event received, as browsers send it when they reconnect.",
        json_schema_extra={"pattern": "^[0-9]{0,18}$"},
    ),
]

_HEARTBEAT = b": heartbeat\n\n"
RETRY = b"retry: 1000\n\n"


_BREAKS = {character.encode(): b"\\u%04x" % ord(character) for character in "\x85\u2028\u2029"}
"""Line separators that JSON leaves unescaped but some clients treat as line ends."""


def event_frame(event: RunEvent) -> bytes:
    name = event.WhichOneof("event") or "message"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.sequence, name.encode(), single_line_json(encode(event)))


def single_line_json(content: Any) -> bytes:
    """Encodes JSON without any character that a client could treat as a line end."""
    written = dumps(content)
    for character, escaped in _BREAKS.items():
        written = written.replace(character, escaped)
    return written


class Stream(Response):
    """Response that sends frames until the last one, or until the client disconnects, then closes its source.

    Waits for the next frame and for the disconnect at once, so an idle stream notices a disconnect.
    """

    media_type = MEDIA_TYPE
    greeting = b""
    heartbeat = _HEARTBEAT

    def __init__(
        self, headers: Mapping[str, str] | None = None, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._heartbeat_seconds = heartbeat_seconds

    async def next(self) -> tuple[bytes, bool]:
        """Returns the next frame, and whether it is the last one."""
        raise NotImplementedError

    async def close(self) -> None:
        """Releases the source of the frames."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # as ASGI calls it
        disconnection = asyncio.create_task(disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send(self.greeting, send)
            await self._relay(disconnection, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            disconnection.cancel()
            await self.close()

    async def _relay(self, disconnection: "asyncio.Task[None]", send: Send) -> None:
        reading: asyncio.Task[tuple[bytes, bool]] | None = None
        try:
            while True:
                reading = reading or asyncio.create_task(self.next())
                await asyncio.wait(
                    (reading, disconnection), timeout=self._heartbeat_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if disconnection.done():
                    return
                if not reading.done():
                    await self._send(self.heartbeat, send)
                    continue
                (content, last), reading = reading.result(), None
                await self._send(content, send)
                if last:
                    return
        finally:
            if reading:
                reading.cancel()

    @staticmethod
    async def _send(content: bytes, send: Send) -> None:
        await send({"type": "http.response.body", "body": content, "more_body": True})


class EventStream(Stream):
    """Streams a run's events and stops the feed at the end."""

    greeting = RETRY

    def __init__(
        self,
        feed: RunEventFeed,
        headers: Mapping[str, str] | None = None,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(headers, heartbeat_seconds=heartbeat_seconds)
        self._feed = feed

    async def close(self) -> None:
        self._feed.stop()

    async def next(self) -> tuple[bytes, bool]:
        """Returns the next event.

        A stream that ends without run_ended was interrupted, and its client resumes with the last event id. Errors are
        therefore sent as events only if a resumed stream would fail the same way.
        """
        try:
            event = await self._feed.read()
        except ServiceError as error:
            return closing_frame(error), True
        return (event_frame(event), self._feed.ended) if event else (b"", True)


def closing_frame(error: ServiceError) -> bytes:
    """Last frame of a failed stream: a comment for a transient error, else a problem event."""
    if isinstance(error, Unavailable):
        return b": %s\n\n" % " ".join(error.message.split()).encode()
    return b"event: problem\ndata: %s\n\n" % single_line_json(problem(error))


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
