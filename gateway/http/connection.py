"""HTTP connection limits below the application: request head size, read timeouts and stalled clients."""

import asyncio

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.http.middleware import problem_response
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


class HttpConnection(HttpToolsProtocol):
    """One HTTP connection; malformed requests get a problem response like every other error."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._stall_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        self._stop_stall_timer()
        self._stop_body_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Starts the stall timer when the send buffer is full."""
        super().pause_writing()
        self._start_stall_timer(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self._reject(_TOO_LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_timer.cancel()
        self._start_head_timer()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_timer.cancel()
        super().on_headers_complete()
        self._start_body_timer()

    def on_body(self, body: bytes) -> None:
        self._last_body_time = self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_body_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # as uvicorn calls it
        """Rejects a request that cannot be parsed."""
        self._reject(_MALFORMED)

    def _start_head_timer(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._abort)

    def _start_body_timer(self) -> None:
        self._last_body_time = self.loop.time()
        self._body_timer = self.loop.call_later(BODY_SECONDS, self._check_body)

    def _check_body(self) -> None:
        """Closes the connection if the client sends nothing, or keeps sending after the response is complete."""
        if self.flow.read_paused:  # the server does not read at the moment
            self._last_body_time = self.loop.time()
        silent = self.loop.time() - self._last_body_time
        if self.cycle.response_complete or silent >= BODY_SECONDS:
            self._abort()
        else:
            self._body_timer = self.loop.call_later(BODY_SECONDS - silent, self._check_body)

    def _stop_body_timer(self) -> None:
        if self._body_timer:
            self._body_timer.cancel()
            self._body_timer = None

    def _start_stall_timer(self, pending_bytes: int) -> None:
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self._check_stalled, pending_bytes)

    def _check_stalled(self, previous_bytes: int) -> None:
        """Closes the connection if the client has read nothing since the last check."""
        pending_bytes = self.transport.get_write_buffer_size()
        if pending_bytes < previous_bytes:
            self._start_stall_timer(pending_bytes)
        else:
            self._abort()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _abort(self) -> None:
        self.transport.abort()

    def _reject(self, error: InvalidRequest) -> None:
        self.transport.write(_serialize(problem_response(error, "")))
        self.transport.close()


def _serialize(response: Response) -> bytes:
    names = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 %d \r\n%sconnection: close\r\n\r\n%s" % (response.status_code, names, bytes(response.body))
