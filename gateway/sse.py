"""A feed as server-sent events: id is the sequence number, event what happened, data the event in JSON."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.encoding import dumps, encode
from gateway.feed import Feed
from gateway.status import problem
from protos.hugginggpt.v1.types_pb2 import RunEvent
from services.runtime.errors import ServiceError, Unavailable

MEDIA_TYPE = "text/event-stream"

HEARTBEAT_SECONDS = 15.0
"""Longest silence: proxies and people give up on longer ones."""

_HEARTBEAT = b": heartbeat\n\n"
_RETRY = b"retry: 1000\n\n"


_BREAKS = {character.encode(): b"\\u%04x" % ord(character) for character in "\x85\u2028\u2029"}
"""What JSON leaves as it is, and some readers take for the end of a line."""


def framed(event: RunEvent) -> bytes:
    name = event.WhichOneof("event") or "message"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.sequence, name.encode(), _line(encode(event)))


def _line(content: Any) -> bytes:
    line = dumps(content)
    for character, escaped in _BREAKS.items():
        line = line.replace(character, escaped)
    return line


class EventStream(Response):
    """Sends events as they come, to the last one or until the client goes; then lets go of the feed.

    It waits for the next event and for the client's leaving at once, so an idle stream notices both.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self, feed: Feed, headers: Mapping[str, str] | None = None, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._feed = feed
        self._heartbeat_seconds = heartbeat_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # as ASGI calls it
        gone = asyncio.create_task(disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send(_RETRY, send)
            await self._relay(gone, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._feed.stop()

    async def _relay(self, gone: "asyncio.Task[None]", send: Send) -> None:
        reading: asyncio.Task[tuple[bytes, bool]] | None = None
        try:
            while True:
                reading = reading or asyncio.create_task(self._next())
                await asyncio.wait(
                    (reading, gone), timeout=self._heartbeat_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    return
                if not reading.done():
                    await self._send(_HEARTBEAT, send)
                    continue
                (content, last), reading = reading.result(), None
                await self._send(content, send)
                if last:
                    return
        finally:
            if reading:
                reading.cancel()

    async def _next(self) -> tuple[bytes, bool]:
        """What to send next, and whether it is the last.

        A stream that ends without run_ended was cut: its client comes back with the last id. Only what would happen
        again to one who does so is an event.
        """
        try:
            event = await self._feed.read()
        except Unavailable as error:
            return b": %s\n\n" % " ".join(error.message.split()).encode(), True
        except ServiceError as error:
            return b"event: problem\ndata: %s\n\n" % _line(problem(error)), True
        return (framed(event), self._feed.ended) if event else (b"", True)

    @staticmethod
    async def _send(content: bytes, send: Send) -> None:
        await send({"type": "http.response.body", "body": content, "more_body": True})


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
