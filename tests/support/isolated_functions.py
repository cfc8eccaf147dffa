"""Functions that tests run in worker processes; a worker imports them by name."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experts.host.isolation import report_progress


def in_place(function: Callable[..., Any], *arguments: Any, **_options: Any) -> Any:
    """Stands for isolated() where a test changes what the function finds in this process."""
    return function(*arguments)


def echo(value: Any) -> Any:
    return value


def process_id() -> int:
    return os.getpid()


def allocate(size: int) -> int:
    """Allocates so many bytes and uses them."""
    blocks = []
    while size > 0:
        blocks.append(bytearray(os.urandom(1)) * (16 << 20))
        size -= 16 << 20
    return len(blocks)


def allocate_native(size: int) -> int:
    """Asks for so many bytes at once."""
    return len(bytearray(size))


def spin() -> None:
    """Keeps a processor busy until it is stopped."""
    while True:
        pass


def sleep(seconds: float) -> None:
    """Uses no processor time."""
    time.sleep(seconds)


def abort() -> None:
    """Ends as native code does that finds itself broken."""
    os.abort()


def exit_process(status: int) -> None:
    os._exit(status)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise KeyError("unexpected")


class Unpicklable(Exception):
    """An exception as some libraries have it."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


def fail_unpicklably() -> None:
    raise Unpicklable


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def zeros(size: int) -> bytes:
    return bytes(size)


_kept: list[bytearray] = []
_prepared: list[str] = []


def keep(size: int) -> None:
    """Leaves so many bytes allocated."""
    _kept.append(bytearray(b"x") * size)


def set_prepared(value: str) -> None:
    _prepared.append(value)


def get_prepared() -> list[str]:
    return _prepared


def need_file(path: str) -> None:
    """Fails unless there is such a file."""
    Path(path).stat()


def spin_until(path: str) -> bool:
    """Keeps a processor busy until there is such a file."""
    while not Path(path).exists():
        pass
    return True


def wait_for(path: str) -> None:
    """Waits until there is such a file."""
    while not Path(path).exists():
        time.sleep(0.001)


def note(path: str, text: str) -> None:
    """Adds a text to a file."""
    with Path(path).open("a", encoding="ascii") as file:
        file.write(text)


def report(fraction: float) -> None:
    report_progress(fraction)
