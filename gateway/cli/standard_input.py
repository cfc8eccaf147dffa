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
"""How standard input is named on a command line."""

NAME = "stdin"

WAITED_SECONDS = 5.0
"""How long nothing may come through a pipe that nobody named: it may be open without anybody writing."""


@contextmanager
def attached(*, named: bool, taken: bool = False) -> Iterator[Attachment | None]:
    """What is piped in, as a file that lasts until the block exits; None if nothing is.

    Args:
        named: it was asked for, so it is waited for, and there must be something.
        taken: it has been read already.

    Raises:
        Problem: nothing came.
    """
    if taken or not (named or (_is_piped() and _comes())):
        yield None
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / NAME
        with os.fdopen(os.dup(0), "rb") as source, file.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        empty = not file.stat().st_size
        if empty and named:
            raise Problem(
                "standard input is empty", remedy="pipe something in: cat notes.txt | hugginggpt ask …", status=USAGE
            )
        yield None if empty else Attachment(NAME, file)


def request() -> str:
    """All of standard input, as words.

    Raises:
        Problem: it is no text.
    """
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        remedy = "say what to do in words, and send the rest with --file -"
        raise Problem("standard input is not UTF-8 text", remedy=remedy, status=USAGE) from error


def _is_piped() -> bool:
    """By a pipe or from a file: not a terminal, and not nothing."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _comes() -> bool:
    there, _, _ = select.select([0], [], [], WAITED_SECONDS)
    if not there:
        sys.stderr.write(f"nothing came on standard input for {WAITED_SECONDS:g} s: going on without; --file - waits\n")
    return bool(there)
