"""A Hugging Face Hub for tests: the HTTP routes that huggingface_hub calls, with the real Hub's errors."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """One model repository."""

    files: Mapping[str, bytes]
    """Files of the main branch by path."""
    commit: str = "1" * 40
    offers: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Files of open pull requests by author."""
    gated: bool = False
    private: bool = False
    reader: str = "hf_reader"
    """Token that may read the repository if it is gated or private."""
    license: str = ""
    """Licence on the model's page; empty if the page names none."""

    def at(self, revision: str) -> tuple[str, Mapping[str, bytes]]:
        """The commit and files of a revision."""
        for number, files in enumerate(self.offers.values(), 1):
            commit = f"{number + 1}" * 40
            if revision in (f"refs/pr/{number}", commit):
                return commit, files
        return self.commit, self.files


@dataclass
class Hub:
    """A running Hub."""

    endpoint: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset({"hf_reader", "hf_other"})
    """Valid tokens."""
    requested_paths: list[str] = field(default_factory=list)
    """Requested paths in order."""


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub("")

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requested_paths.append(path)
        api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models/").strip("/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        repository = self.hub.repositories.get(name)
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.tokens:
            self._answer(401, {}, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif repository is None or (repository.private and token != repository.reader):
            self._answer(404 if token else 401, {}, {"X-Error-Code": "RepoNotFound"})
        elif api:
            self._answer(200, self._metadata(name, repository, rest))
        elif repository.gated and token != repository.reader:
            self._answer(403 if token else 401, {}, {"X-Error-Code": "GatedRepo"})
        else:
            self._file(repository, rest[1], "/".join(rest[2:]))

    def _metadata(self, name: str, repository: Repository, rest: list[str]) -> object:
        kind, revision = [*rest, ""][0], "/".join(rest[1:]) or "main"
        commit, files = repository.at(revision)
        if kind == "tree":
            return [
                {"type": "file", "path": path, "size": len(content), "oid": sha256(content).hexdigest()[:40]}
                for path, content in files.items()
            ]
        if kind == "discussions":
            offers = [_offer(number, author) for number, author in enumerate(repository.offers, 1)]
            return {"discussions": offers, "count": len(offers), "start": 0}
        facts = {"cardData": {"license": repository.license}} if repository.license else {}
        siblings = [{"rfilename": name} for name in files]
        return {"id": name, "sha": commit, "private": repository.private, "siblings": siblings, **facts}

    def _file(self, repository: Repository, revision: str, path: str) -> None:
        commit, files = repository.at(revision)
        if path not in files:
            self._answer(404, {}, {"X-Error-Code": "EntryNotFound"})
            return
        content = files[path]
        self._send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{sha256(content).hexdigest()[:40]}"'})

    def _answer(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _offer(number: int, author: str) -> dict[str, object]:
    return {
        "num": number,
        "title": "Adding `safetensors` variant of this model",
        "author": {"name": author},
        "isPullRequest": True,
        "status": "open",
        "createdAt": "2024-01-01T00:00:00.000Z",
        "repo": {"name": "x/y", "type": "model"},
    }
