"""Checks the request and the files of a command before anything is sent."""

from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from gateway.cli import document_file
from gateway.cli.errors import USAGE, Problem
from gateway.client import Source
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
    found = [source for name in named for source in _meant(name)]
    parts(found)
    return found


def _meant(name: str) -> Iterator[Source]:
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
