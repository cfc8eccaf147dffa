"""Scripted gateway for tests of the command line."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ScriptedGateway:
    """HTTP server with the gateway's routes, whose runs always have the same events."""

    health: Any = field(default_factory=lambda: {"service": "hugginggpt"})
    events: list[dict[str, Any]] = field(default_factory=list)
    """Events of the run; sequence numbers, times and run ids are added."""
    break_after: int = 0
    """Number of events after which the first stream breaks; 0 for never."""
    final_bytes: bytes = b""
    """Bytes sent before the stream breaks."""
    error: tuple[int, dict[str, Any]] | None = None
    """HTTP status and problem with which runs are rejected."""
    pages: dict[str, Any] = field(default_factory=dict)
    """JSON responses by path."""
    artifacts: dict[str, bytes] = field(default_factory=dict)
    block_before_end: threading.Event | None = None
    """If given, the stream waits for this event before its last one."""
    blocked: threading.Event = field(default_factory=threading.Event)
    """Set when the stream waits."""
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Method, path and body of every request."""
    url: str = ""

    RUN = "run-1"

    def add_artifact(self, content: bytes, name: str, media_type: str) -> dict[str, Any]:
        """Stores an artifact and returns its value."""
        digest = sha256(content).hexdigest()
        self.artifacts[digest] = content
        return {"artifact": {"sha256": digest, "media_type": media_type, "size_bytes": len(content), "name": name}}

    def spec(self) -> dict[str, Any]:
        """Spec of the last run."""
        body = next(body for method, path, body in reversed(self.requests) if (method, path) == ("POST", "/v1/runs"))
        found = re.search(rb'name="spec".*?\r\n\r\n(.*?)\r\n--', body, re.DOTALL)
        spec: dict[str, Any] = json.loads(found[1] if found else body)
        return spec

    def events_after(self, after: int) -> Iterator[dict[str, Any]]:
        for number, event in enumerate(self.events, start=1):
            if number > after:
                yield {"run_id": self.RUN, "sequence": number, "time": f"2030-01-01T00:00:{number:02}Z", **event}

    @contextmanager
    def running(self) -> Iterator["ScriptedGateway"]:
        """Serves until the block exits."""
        handler = type("Handler", (_Handler,), {"gateway": self})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                if self.block_before_end:
                    self.block_before_end.set()
                server.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    gateway: ScriptedGateway

    def handle(self) -> None:
        with suppress(ConnectionError):  # clients may disconnect
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # name in the base class
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.gateway.requests.append((self.command, path, body))
        digest = path.removeprefix("/v1/artifacts/")
        if path == "/healthz":
            self._json(200, self.gateway.health)
        elif path == "/v1/runs" and self.gateway.error:
            self._json(*self.gateway.error)
        elif path == "/v1/runs":
            self._stream(0, self.gateway.break_after)
        elif path == f"/v1/runs/{self.gateway.RUN}/events":
            self._stream(int(self.headers.get("Last-Event-ID") or 0), 0)
        elif path == f"/v1/runs/{self.gateway.RUN}/cancel" or self.command == "DELETE":
            self._json(200, {})
        elif digest in self.gateway.artifacts:
            self._send(200, "application/octet-stream", self.gateway.artifacts[digest])
        elif path in self.gateway.pages:
            self._json(200, self.gateway.pages[path])
        else:
            self._json(404, {"detail": f"there is no {path}", "code": "ROUTE", "remedy": "look at /docs"})

    def _stream(self, after: int, break_after: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b": welcome\n\n")
        for event in self.gateway.events_after(after):
            if self.gateway.block_before_end and event["sequence"] == len(self.gateway.events):
                self.gateway.blocked.set()
                self.gateway.block_before_end.wait(30)
            self.wfile.write(f"id: {event['sequence']}\ndata: {json.dumps(event)}\n\n".encode())
            if event["sequence"] == break_after:
                self.wfile.write(self.gateway.final_bytes)
                return

    def _json(self, status: int, content: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _send(self, status: int, media_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815  # names in the base class
