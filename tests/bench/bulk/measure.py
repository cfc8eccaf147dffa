"""Wall time, processor time and memory of a program and all processes that it starts."""

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.bench.peers.process_tree import kill, process_tree, resident_mb

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux: processes whose parent has ended become children of this one."""
SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Measurement:
    """Resources of one program."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measurement:
    """Runs a program to its end, and waits for processes that it leaves.

    Raises:
        CalledProcessError: it failed with another status than 1, which means that some rows have errors.
    """
    _adopt_orphans()
    before, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    peak, ended = [0.0], threading.Event()
    with _start(command, environment) as process:
        sampler = threading.Thread(target=_sample, args=(process.pid, peak, ended))
        sampler.start()
        errors = process.communicate()[1]
        seconds = time.monotonic() - started_at
        ended.set()
        sampler.join()
    if process.returncode not in {0, 1} or "Traceback" in errors:
        sys.stderr.write(errors)
        raise subprocess.CalledProcessError(process.returncode, command)
    _wait_for_orphans()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Measurement(seconds, cpu, peak[0])


@contextmanager
def run_until_killed(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> "Iterator[subprocess.Popen[str]]":
    """Starts a program, and kills it and all processes that it has started at the end of the block."""
    _adopt_orphans()
    with _start(command, environment) as process:
        try:
            yield process
        finally:
            kill(process_tree(process.pid))
    _wait_for_orphans()


def _start(command: Sequence[str], environment: Mapping[str, str] | None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def _wait_for_orphans() -> None:
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _sample(root: int, peak: list[float], ended: threading.Event) -> None:
    while not ended.wait(SAMPLE_SECONDS):
        peak[0] = max(peak[0], resident_mb(root) or 0.0)
