"""Local services as a subprocess."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from gateway.cli.errors import Problem

START_SECONDS = 120.0
"""Start limit; covers a slow machine with an empty disk cache."""
STOP_SECONDS = 30.0
REPORTED_ERRORS = 12
"""Log lines reported when the services do not start."""
PLAIN = "plain"
"""Level of a line that is not in our log format."""

_ROOT = Path(__file__).parents[2]

OnLine = Callable[[Mapping[str, Any]], None]
"""Called with each log entry of the services."""


class LocalStack:
    """A supervisor process and its services. They end when this process ends, because their standard input closes."""

    def __init__(self, options: Sequence[str], on_line: OnLine) -> None:
        self._on_line = on_line
        self._errors: deque[str] = deque(maxlen=REPORTED_ERRORS)
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-P", "-m", "services.local.parent_watch", "services.local", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "LOG_FORMAT": "json"},
            start_new_session=True,  # Ctrl-C of the terminal only reaches this process
        )
        self._out: IO[bytes] = self._process.stdout  # type: ignore[assignment]  # set because of stdout=PIPE
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ready(self) -> Mapping[str, Any]:
        """Waits until the services are ready; returns their addresses.

        Raises:
            Problem: the services do not start.
        """
        readable, _, _ = select.select([self._out], [], [], START_SECONDS)
        line = self._out.readline() if readable else b""
        if line:
            addresses: Mapping[str, Any] = json.loads(line)
            return addresses
        self.stop()
        raise Problem(
            "\n  ".join(("the local services do not start", *dict.fromkeys(self._errors))),
            remedy="hugginggpt doctor checks for causes",
        )

    def wait(self) -> int:
        """Waits for the end of the services; returns the exit status."""
        return self._process.wait()

    def signal(self) -> None:
        """Sends SIGTERM: the first stops the services gracefully, the second at once."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stops the services and waits for their end."""
        if self._process.poll() is None:
            self.signal()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        with self._process:  # closes its pipes
            pass

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            entry = _entry(line)
            if entry.get("level") in ("error", PLAIN):
                details = (entry.get(key) for key in ("error", "remedy"))
                self._errors.append(": ".join(filter(None, (str(entry["event"]), *details))))
            self._on_line(entry)


def _entry(line: bytes) -> Mapping[str, Any]:
    text = line.decode(errors="replace").rstrip()
    try:
        entry = json.loads(text)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"event": text, "level": PLAIN}
