"""HTTP connection limits below the application: request head size, read timeouts and stalled clients."""

import asyncio
from contextvars import ContextVar
from typing import Any, cast

import httptools
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.http.problem import problem_response
from services.common.errors import InvalidRequest

HEAD_BYTES = 64 * 1024
"""Largest request line and headers; a long cookie is 4 KiB."""

HEAD_SECONDS = 20.0
"""Time limit for receiving the head, from the start of the connection or the first byte."""

BODY_SECONDS = 30.0
"""Longest pause while receiving a body, and longest time a client may keep sending after it has its response."""

STALL_SECONDS = 30.0
"""Longest time a client may read nothing while data waits for it; then the connection is closed."""

_MALFORMED = InvalidRequest(
    "the request is not valid HTTP/1.1",
    remedy="send HTTP/1.1 without control characters in headers, such as a carriage return after the API key; "
    "gRPC clients use the gRPC port",
)
_TOO_LONG = InvalidRequest(
    f"the request head is larger than the limit of {HEAD_BYTES // 1024} KiB",
    reason="HEAD_TOO_LARGE",
    remedy="send fewer or shorter headers, and long values in the body",
)


_current: ContextVar["HttpConnection | None"] = ContextVar("connection", default=None)


def response_sent() -> None:
    """Notes that the response of the current request is complete."""
    if connection := _current.get():
        connection.responses += 1


class HttpConnection(asyncio.Protocol):
    """One HTTP connection: passes what it receives to uvicorn's protocol, and enforces the limits of this module.

    It follows the requests with a second parser of the same kind as uvicorn's, and therefore uses no private part of
    uvicorn, only the interface of asyncio's protocols. A malformed request gets a problem response like other errors.

    Args:
        options: what uvicorn gives its protocols.
    """

    def __init__(self, **options: Any) -> None:
        self._uvicorn = HttpToolsProtocol(**options)
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn; the rest is not processed
        self._requests = 0
        self.responses = 0
        """Number of complete responses."""
        self._stall_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._uvicorn.connection_made(self._transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        self._stop_stall_timer()
        self._stop_body_timer()
        self._uvicorn.connection_lost(exc)
        del self._parser  # it refers to this connection

    def pause_writing(self) -> None:
        """Starts the stall timer when the send buffer is full."""
        self._uvicorn.pause_writing()
        self._start_stall_timer(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        self._uvicorn.resume_writing()

    def eof_received(self) -> None:
        self._uvicorn.eof_received()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # uvicorn ignores the upgrade
        except httptools.HttpParserError:
            self._reject(_MALFORMED)
            return
        _current.set(self)  # uvicorn starts the request's task in this context
        self._uvicorn.data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self._transport.is_closing():
                self._reject(_TOO_LONG)

    def on_message_begin(self) -> None:
        self._head_timer.cancel()
        self._start_head_timer()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._requests += 1
        self._head_timer.cancel()
        self._stop_body_timer()
        self._start_body_timer()

    def on_body(self, _body: bytes) -> None:
        self._last_body_time = self._loop.time()

    def on_message_complete(self) -> None:
        self._stop_body_timer()

    def _start_head_timer(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._head_timer = self._loop.call_later(HEAD_SECONDS, self._transport.abort)

    def _start_body_timer(self) -> None:
        self._last_body_time = self._loop.time()
        self._body_timer = self._loop.call_later(BODY_SECONDS, self._check_body)

    def _check_body(self) -> None:
        """Closes the connection if the client sends nothing, or keeps sending after the response is complete."""
        if not self._transport.is_reading():  # the server does not read at the moment
            self._last_body_time = self._loop.time()
        silent = self._loop.time() - self._last_body_time
        if self.responses >= self._requests or silent >= BODY_SECONDS:
            self._transport.abort()
        else:
            self._body_timer = self._loop.call_later(BODY_SECONDS - silent, self._check_body)

    def _stop_body_timer(self) -> None:
        if self._body_timer:
            self._body_timer.cancel()
            self._body_timer = None

    def _start_stall_timer(self, pending_bytes: int) -> None:
        self._stall_timer = self._loop.call_later(STALL_SECONDS, self._check_stalled, pending_bytes)

    def _check_stalled(self, previous_bytes: int) -> None:
        """Closes the connection if the client has read nothing since the last check."""
        pending_bytes = self._transport.get_write_buffer_size()
        if pending_bytes < previous_bytes:
            self._start_stall_timer(pending_bytes)
        else:
            self._transport.abort()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _reject(self, error: InvalidRequest) -> None:
        self._transport.write(_serialize(problem_response(error, "")))
        self._transport.close()


def _serialize(response: Response) -> bytes:
    names = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 %d \r\n%sconnection: close\r\n\r\n%s" % (response.status_code, names, bytes(response.body))
