"""Request and files of a command, from arguments and standard input, checked before anything is sent."""

import os
import select
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gateway.cli import document_file
from gateway.cli.errors import USAGE, Problem
from gateway.client import Attachment, Source
from gateway.client.attachments import parts


def check_request(request: str, *, has_plan: bool) -> None:
    """Raises Problem if the request is empty or not valid Unicode."""
    if not request.strip() and not has_plan:
        raise Problem(
            "the request is empty",
            remedy='describe the task: hugginggpt ask "Read the text aloud" --file sign.png',
            status=USAGE,
        )
    try:
        request.encode()
    except UnicodeEncodeError as error:
        raise Problem(
            "the request is not valid UTF-8", remedy="check the encoding of the terminal", status=USAGE
        ) from error


def sources(named: Sequence[str]) -> list[Source]:
    """The files that --file names by path, pattern, URL or id of a stored file.

    Raises:
        Problem: a pattern matches no file.
        InvalidRequest: a file cannot be sent.
    """
    found = [source for name in named for source in _sources_named(name)]
    parts(found)
    return found


def _sources_named(name: str) -> Iterator[Source]:
    if Path(name).exists():
        yield Path(name)
    elif has_magic(name):
        files = sorted(path for path in map(Path, glob(name, recursive=True)) if path.is_file())  # noqa: PTH207  # a pattern may be an absolute path
        if not files:
            raise Problem(f"no file matches {name}", remedy="check --file", status=USAGE)
        yield from files
    else:
        yield name


def read_plan(file: Path) -> list[Any]:
    """Reads the tasks of a plan from the output of ask --json or export, or from a list of tasks."""
    return document_file.plan(document_file.read(file))


NAME = "stdin"

WAIT_SECONDS = 5.0
"""Time to wait for data on a pipe that no argument names: it may be open without a writer."""


@contextmanager
def attached_standard_input(*, named: bool, is_request: bool = False) -> Iterator[Attachment | None]:
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


def read_request() -> str:
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
