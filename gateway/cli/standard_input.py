"""What comes on standard input: a file to send, or the request."""

import os
import select
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.cli.errors import USAGE, Problem
from gateway.client import Attachment

STDIN = "-"
"""Argument that means standard input."""

NAME = "stdin"

WAIT_SECONDS = 5.0
"""Time to wait for data on a pipe that no argument names: it may be open without a writer."""


@contextmanager
def attached(*, named: bool, is_request: bool = False) -> Iterator[Attachment | None]:
    """Yields the piped input as a temporary file; None if there is none.

    Args:
        named: an argument names standard input, so data is required and waited for.
        is_request: standard input was already read as the request.

    Raises:
        Problem: standard input is named and empty.
    """
    if is_request or not (named or (_is_piped() and _has_data())):
        yield None
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / NAME
        with os.fdopen(os.dup(0), "rb") as source, file.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        empty = not file.stat().st_size
        if empty and named:
            raise Problem(
                "standard input is empty", remedy="pipe data to it: cat notes.txt | hugginggpt ask …", status=USAGE
            )
        yield None if empty else Attachment(NAME, file)


def request() -> str:
    """Reads all of standard input as text.

    Raises:
        Problem: it is not UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        remedy = "give the request as an argument, and send the data with --file -"
        raise Problem("standard input is not UTF-8 text", remedy=remedy, status=USAGE) from error


def _is_piped() -> bool:
    """Whether standard input is a pipe or a file."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _has_data() -> bool:
    readable, _, _ = select.select([0], [], [], WAIT_SECONDS)
    if not readable:
        sys.stderr.write(
            f"no data on standard input for {WAIT_SECONDS:g} s: continuing without it; --file - waits for it\n"
        )
    return bool(readable)
