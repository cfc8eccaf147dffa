"""Functions that tests run in worker processes, which import them by name."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experts.host.isolation import report_progress


def run_in_this_process(function: Callable[..., Any], *arguments: Any, **_options: Any) -> Any:
    """Replaces isolated() in tests that patch this process."""
    return function(*arguments)


def echo(value: Any) -> Any:
    return value


def process_id() -> int:
    return os.getpid()


def allocate(size: int) -> int:
    """Allocates and writes the given number of bytes."""
    blocks = []
    while size > 0:
        blocks.append(bytearray(os.urandom(1)) * (16 << 20))
        size -= 16 << 20
    return len(blocks)


def allocate_native(size: int) -> int:
    """Allocates the given number of bytes at once."""
    return len(bytearray(size))


def spin() -> None:
    """Uses the processor until the process is stopped."""
    while True:
        pass


def sleep(seconds: float) -> None:
    """Waits without processor time."""
    time.sleep(seconds)


def abort() -> None:
    """Aborts the process, as native code does after an internal error."""
    os.abort()


def exit_process(status: int) -> None:
    os._exit(status)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise KeyError("unexpected")


class Unpicklable(Exception):
    """An exception that cannot be pickled, as in some libraries."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


def fail_unpicklably() -> None:
    raise Unpicklable


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def zeros(size: int) -> bytes:
    return bytes(size)


_allocated: list[bytearray] = []
_prepared: list[str] = []


def keep_allocated(size: int) -> None:
    """Allocates the given number of bytes for the process's lifetime."""
    _allocated.append(bytearray(b"x") * size)


def set_prepared(value: str) -> None:
    _prepared.append(value)


def get_prepared() -> list[str]:
    return _prepared


def require_file(path: str) -> None:
    """Fails unless the file exists."""
    Path(path).stat()


def spin_until(path: str) -> bool:
    """Uses the processor until the file exists."""
    while not Path(path).exists():
        pass
    return True


def wait_for(path: str) -> None:
    """Waits until the file exists."""
    while not Path(path).exists():
        time.sleep(0.001)


def append_text(path: str, text: str) -> None:
    """Appends a text to a file."""
    with Path(path).open("a", encoding="ascii") as file:
        file.write(text)


def report(fraction: float) -> None:
    report_progress(fraction)
