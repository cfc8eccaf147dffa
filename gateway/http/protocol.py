"""The two ends of a connection that no route sees.

What comes in before it is a request: heads that cannot be read, are too long or never end. And what goes out and is
never taken.
"""

import asyncio

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.http.middleware import problem_response
from services.common.errors import InvalidRequest

HEAD_BYTES = 64 * 1024
"""Longest head; a long cookie is 4 KiB."""

HEAD_SECONDS = 20.0
"""How long a head may take to come in, from the connection's beginning or the first byte."""

BODY_SECONDS = 30.0
"""How long nothing of a body may come in, and how long one may go on that has been answered already."""

STALL_SECONDS = 30.0
"""How long a client may take nothing of what waits for it, before it is taken for gone."""

_MALFORMED = InvalidRequest(
    "this is not HTTP",
    remedy="speak HTTP/1.1 here, with no stray character in a header, such as a carriage return after a key; "
    "gRPC has a port of its own",
)
_TOO_LONG = InvalidRequest(
    f"the request's head is longer than {HEAD_BYTES // 1024} KiB",
    reason="HEAD_TOO_LARGE",
    remedy="send fewer or shorter headers, and long values in the body",
)


class Wire(HttpToolsProtocol):
    """One connection; what it refuses is told as every other error is."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._stalled: asyncio.TimerHandle | None = None
        self._body: asyncio.TimerHandle | None = None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        self._flows()
        self._body_ended()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits for the client than should."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._flows()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self._refuse(_TOO_LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._late.cancel()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._late.cancel()
        super().on_headers_complete()
        self._await_body()

    def on_body(self, body: bytes) -> None:
        self._heard = self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_ended()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # as uvicorn calls it
        """Tells a client that what it sent cannot be read."""
        self._refuse(_MALFORMED)

    def _await_head(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _await_body(self) -> None:
        self._heard = self.loop.time()
        self._body = self.loop.call_later(BODY_SECONDS, self._listen)

    def _listen(self) -> None:
        """Lets go of a client that sends nothing, or goes on though it has its answer."""
        if self.flow.read_paused:  # it may not send
            self._heard = self.loop.time()
        silent = self.loop.time() - self._heard
        if self.cycle.response_complete or silent >= BODY_SECONDS:
            self._give_up()
        else:
            self._body = self.loop.call_later(BODY_SECONDS - silent, self._listen)

    def _body_ended(self) -> None:
        if self._body:
            self._body.cancel()
            self._body = None

    def _watch(self, waiting: int) -> None:
        self._stalled = self.loop.call_later(STALL_SECONDS, self._look, waiting)

    def _look(self, before: int) -> None:
        """Lets go of a client for which as many bytes wait as before."""
        waiting = self.transport.get_write_buffer_size()
        if waiting < before:
            self._watch(waiting)
        else:
            self._give_up()

    def _flows(self) -> None:
        if self._stalled:
            self._stalled.cancel()
            self._stalled = None

    def _give_up(self) -> None:
        self.transport.abort()

    def _refuse(self, error: InvalidRequest) -> None:
        self.transport.write(_written(problem_response(error, "")))
        self.transport.close()


def _written(response: Response) -> bytes:
    names = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 %d \r\n%sconnection: close\r\n\r\n%s" % (response.status_code, names, bytes(response.body))
