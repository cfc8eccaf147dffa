"""A feed as server-sent events: id is the sequence number, event what happened, data the event in JSON."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.http.problem import problem
from gateway.json_encoder import dumps, encode
from gateway.run_stream import Feed
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import ServiceError, Unavailable

MEDIA_TYPE = "text/event-stream"

HEARTBEAT_SECONDS = 15.0
"""Longest silence: proxies and people give up on longer ones."""

_HEARTBEAT = b": heartbeat\n\n"
RETRY = b"retry: 1000\n\n"


_BREAKS = {character.encode(): b"\\u%04x" % ord(character) for character in "\x85\u2028\u2029"}
"""What JSON leaves as it is, and some readers take for the end of a line."""


def framed(event: RunEvent) -> bytes:
    name = event.WhichOneof("event") or "message"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.sequence, name.encode(), line(encode(event)))


def line(content: Any) -> bytes:
    """JSON that every reader takes for one line."""
    written = dumps(content)
    for character, escaped in _BREAKS.items():
        written = written.replace(character, escaped)
    return written


class Stream(Response):
    """Sends frames as they come, to the last one or until the client goes; then it is closed.

    It waits for the next frame and for the client's leaving at once, so an idle stream notices both.
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
        """What to send next, and whether it is the last."""
        raise NotImplementedError

    async def close(self) -> None:
        """Lets go of what the frames come from."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # as ASGI calls it
        gone = asyncio.create_task(disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send(self.greeting, send)
            await self._relay(gone, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            await self.close()

    async def _relay(self, gone: "asyncio.Task[None]", send: Send) -> None:
        reading: asyncio.Task[tuple[bytes, bool]] | None = None
        try:
            while True:
                reading = reading or asyncio.create_task(self.next())
                await asyncio.wait(
                    (reading, gone), timeout=self._heartbeat_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
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
    """Sends a run's events, and lets go of the feed."""

    greeting = RETRY

    def __init__(
        self, feed: Feed, headers: Mapping[str, str] | None = None, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__(headers, heartbeat_seconds=heartbeat_seconds)
        self._feed = feed

    async def close(self) -> None:
        self._feed.stop()

    async def next(self) -> tuple[bytes, bool]:
        """An event.

        A stream that ends without run_ended was cut: its client comes back with the last id. Only what would happen
        again to one who does so is an event.
        """
        try:
            event = await self._feed.read()
        except ServiceError as error:
            return last_words(error), True
        return (framed(event), self._feed.ended) if event else (b"", True)


def last_words(error: ServiceError) -> bytes:
    """What a stream ends with that cannot go on: a comment, or what would happen again as an event."""
    if isinstance(error, Unavailable):
        return b": %s\n\n" % " ".join(error.message.split()).encode()
    return b"event: problem\ndata: %s\n\n" % line(problem(error))


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
