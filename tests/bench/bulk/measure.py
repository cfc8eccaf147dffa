"""Wall time, processor time and memory of a program and all processes that it starts."""

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.bench.peers.process_tree import resident_mb

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
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    before, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    peak, ended = [0.0], threading.Event()
    with subprocess.Popen(
        command, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        sampler = threading.Thread(target=_sample, args=(process.pid, peak, ended))
        sampler.start()
        errors = process.communicate()[1]
        seconds = time.monotonic() - started_at
        ended.set()
        sampler.join()
    if process.returncode not in {0, 1} or b"Traceback" in errors:
        sys.stderr.buffer.write(errors)
        raise subprocess.CalledProcessError(process.returncode, command)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Measurement(seconds, cpu, peak[0])


def _sample(root: int, peak: list[float], ended: threading.Event) -> None:
    while not ended.wait(SAMPLE_SECONDS):
        peak[0] = max(peak[0], resident_mb(root) or 0.0)
