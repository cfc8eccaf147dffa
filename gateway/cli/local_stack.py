"""The house as a subprocess: started, waited for, stopped."""

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
"""On a slow machine with cold files."""
STOP_SECONDS = 30.0
CAUSES = 12
"""How many of its last words are told when it does not start."""
PLAIN = "plain"
"""The level of a line that is no line of our log."""

_ROOT = Path(__file__).parents[2]

OnLine = Callable[[Mapping[str, Any]], None]
"""Given each line of the house's log."""


class House:
    """A supervisor and its children. It ends with us, however we end: it hangs on its standard input."""

    def __init__(self, options: Sequence[str], on_line: OnLine) -> None:
        self._on_line = on_line
        self._causes: deque[str] = deque(maxlen=CAUSES)
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-P", "-m", "services.local.parent_watch", "services.local", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "LOG_FORMAT": "json"},
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone
        )
        self._out: IO[bytes] = self._process.stdout  # type: ignore[assignment]  # there, since we asked for a pipe
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ready(self) -> Mapping[str, Any]:
        """Waits for the line that says where everything is.

        Raises:
            Problem: it does not come.
        """
        there, _, _ = select.select([self._out], [], [], START_SECONDS)
        line = self._out.readline() if there else b""
        if line:
            told: Mapping[str, Any] = json.loads(line)
            return told
        self.stop()
        raise Problem(
            "\n  ".join(("the house does not start", *dict.fromkeys(self._causes))),
            remedy="hugginggpt doctor looks for what is wrong",
        )

    def wait(self) -> int:
        """Until it ends by itself; its exit status."""
        return self._process.wait()

    def signal(self) -> None:
        """Asks it to stop; the second time, to stop at once."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Asks it to stop and waits for it."""
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
                told = (entry.get(key) for key in ("error", "remedy"))
                self._causes.append(": ".join(filter(None, (str(entry["event"]), *told))))
            self._on_line(entry)


def _entry(line: bytes) -> Mapping[str, Any]:
    text = line.decode(errors="replace").rstrip()
    try:
        entry = json.loads(text)
    except ValueError:
        entry = None
    return entry if isinstance(entry, dict) else {"event": text, "level": PLAIN}
