"""A gateway, asked over HTTP."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx

from gateway.cli import events
from gateway.cli.problem import FAILED, USAGE, NobodyThere, Problem

SERVICE = "hugginggpt"
"""How a gateway of ours calls itself."""

GREETING_SECONDS = 5.0
SILENCE_SECONDS = 60.0
"""A stream that says nothing for so long, not even a comment, is broken."""

RESUMES, RESUME_SECONDS = 40, 0.5
"""How often in a row a broken stream is taken up again, and the pause before."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ASKED_WRONGLY, _LATER = (400, 413, 415, 422), (502, 503, 504)


class _NotNow(Problem):
    """The gateway is there but something behind it is not."""


class Api:
    """One gateway. Every method raises Problem if it refuses or cannot be reached."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(SILENCE_SECONDS, connect=GREETING_SECONDS),
            trust_env=_host(url) not in _LOOPBACK,  # no proxy stands between us and this machine
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def greet(self) -> None:
        """Makes sure that a gateway of ours answers.

        Raises:
            NobodyThere: nothing listens at the address.
        """
        try:
            reply = self._http.get("/healthz", timeout=GREETING_SECONDS)
            ours = reply.json().get("service") == SERVICE
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NobodyThere(f"no gateway answers at {self.url}", remedy="start one: hugginggpt up") from error
        except (httpx.TransportError, ValueError, AttributeError):
            ours = False
        if not ours:
            raise Problem(
                f"what answers at {self.url} is no HuggingGPT gateway",
                remedy="name the gateway with --url, or start one elsewhere: hugginggpt up --http 127.0.0.1:8090",
            )

    def ready(self) -> tuple[bool, Any]:
        """Whether the gateway can take requests, and what it says about it."""
        with self._reaching():
            reply = self._http.get("/readyz")
        return reply.is_success, _content(reply)

    def get(self, path: str) -> Any:
        with self._reaching():
            return _checked(self._http.get(path)).json()

    def ask(self, spec: Mapping[str, Any], files: Sequence[Path]) -> Iterator[events.Event]:
        """Starts a run and yields its events up to the last, over as many connections as it takes."""
        key, run_id, sequence, failures = uuid4().hex, "", 0, 0
        while True:
            try:
                opened = self._watched(run_id, sequence) if run_id else self._accepted(spec, files, key)
                with opened as reply:
                    for event in events.read(reply.iter_lines()):
                        run_id, sequence, failures = event["run_id"], event["sequence"], 0
                        yield event
                        if "run_ended" in event:
                            return
                broken = "it says no more"
            except httpx.TransportError as error:
                broken = type(error).__name__
            except _NotNow as problem:
                if not run_id:
                    raise
                broken = problem.message
            failures += 1
            if failures > RESUMES:
                remedy = f"the run goes on; it is at {self.url}/v1/runs/{run_id}" if run_id else "is it still running?"
                raise Problem(f"the gateway at {self.url} does not answer any more: {broken}", remedy=remedy)
            time.sleep(RESUME_SECONDS)

    def cancel(self, run_id: str) -> None:
        with self._reaching():
            _checked(self._http.post(f"/v1/runs/{quote(run_id, safe='')}/cancel", timeout=GREETING_SECONDS))

    def forget(self, expert: str) -> None:
        with self._reaching():
            _checked(self._http.delete(f"/v1/experts/{quote(expert, safe='')}"))

    @contextmanager
    def download(self, sha256: str) -> Iterator[Iterator[bytes]]:
        """The bytes of an artifact, in pieces."""
        with self._reaching(), self._http.stream("GET", f"/v1/artifacts/{sha256}", follow_redirects=True) as reply:
            yield _checked(reply).iter_bytes()

    @contextmanager
    def _accepted(self, spec: Mapping[str, Any], files: Sequence[Path], key: str) -> Iterator[httpx.Response]:
        headers = {"Accept": "text/event-stream", "Idempotency-Key": key}
        with ExitStack() as stack:
            form: list[tuple[str, Any]] = [("spec", (None, json.dumps(spec), "application/json"))]
            form += [("file", (file.name, stack.enter_context(file.open("rb")))) for file in files]
            yield _checked(stack.enter_context(self._http.stream("POST", "/v1/runs", files=form, headers=headers)))

    @contextmanager
    def _watched(self, run_id: str, after: int) -> Iterator[httpx.Response]:
        path, headers = f"/v1/runs/{quote(run_id, safe='')}/events", {"Accept": "text/event-stream"}
        with self._http.stream("GET", path, params={"after": after}, headers=headers) as reply:
            yield _checked(reply)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            raise Problem(
                f"the gateway at {self.url} does not answer: {type(error).__name__}", remedy="is it still running?"
            ) from error


def _host(url: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts.hostname
    raise Problem(f"{url} is no URL of a gateway", remedy="for example --url http://127.0.0.1:8080", status=USAGE)


def _checked(reply: httpx.Response) -> httpx.Response:
    if reply.is_success:
        return reply
    reply.read()
    problem = _content(reply)
    kind = _NotNow if reply.status_code in _LATER else Problem
    raise kind(
        problem.get("detail") or f"the gateway says {reply.status_code} {reply.reason_phrase}",
        remedy=problem.get("remedy", ""),
        status=USAGE if reply.status_code in _ASKED_WRONGLY else FAILED,
    )


def _content(reply: httpx.Response) -> Mapping[str, Any]:
    try:
        content = reply.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
