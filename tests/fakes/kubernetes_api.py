"""A Kubernetes API server that answers read requests from given objects."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


@dataclass
class KubernetesApi:
    """The server.

    Attributes:
        objects: by path of their list, such as /api/v1/nodes; other paths answer 404.
        requests: method and path of each request.
        forbidden: paths that answer 403.
    """

    objects: Mapping[str, Sequence[Any]]
    requests: list[str] = field(default_factory=list)
    forbidden: frozenset[str] = frozenset()

    def answer(self, method: str, path: str) -> tuple[int, Mapping[str, Any]]:
        self.requests.append(f"{method} {path}")
        if path in self.forbidden:
            return 403, _status(403, "Forbidden", f"{path} is forbidden")
        if path not in self.objects:
            return 404, _status(404, "NotFound", "the server could not find the requested resource")
        return 200, {"kind": "List", "apiVersion": "v1", "items": self.objects[path]}


def _status(code: int, reason: str, message: str) -> Mapping[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


@contextmanager
def serving(api: KubernetesApi, folder: Path) -> Iterator[Path]:
    """Serves it, and yields a kubeconfig for it in the folder."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = api.answer("GET", self.path.partition("?")[0])
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield _kubeconfig(folder, server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _kubeconfig(folder: Path, port: int) -> Path:
    named = {"name": "fake"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [named | {"cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [named | {"user": {}}],
        "contexts": [named | {"context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file
