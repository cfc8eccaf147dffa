"""What is to be sent: looked at before anything is."""

from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from gateway.cli import document_file
from gateway.cli.errors import USAGE, Problem
from gateway.client import Source
from gateway.client.attachments import parts


def check_request(request: str, *, has_plan: bool) -> None:
    """Raises Problem for a request that says nothing, or says it in no known letters."""
    if not request.strip() and not has_plan:
        raise Problem(
            "the request is empty",
            remedy='say what to do: hugginggpt ask "Read the text aloud" --file sign.png',
            status=USAGE,
        )
    try:
        request.encode()
    except UnicodeEncodeError as error:
        raise Problem("the request is not valid UTF-8", remedy="check the terminal's encoding", status=USAGE) from error


def sources(named: Sequence[str]) -> list[Source]:
    """What --file names: a file, files by a pattern, a URL, or the id of a file that the gateway keeps.

    Raises:
        Problem: a pattern fits no file.
        InvalidRequest: a file cannot be sent.
    """
    found = [source for name in named for source in _meant(name)]
    parts(found)
    return found


def _meant(name: str) -> Iterator[Source]:
    if Path(name).exists():
        yield Path(name)
    elif has_magic(name):
        files = sorted(path for path in map(Path, glob(name, recursive=True)) if path.is_file())  # noqa: PTH207  # a pattern may begin at the root
        if not files:
            raise Problem(f"no file fits {name}", remedy="check --file", status=USAGE)
        yield from files
    else:
        yield name


def read_plan(file: Path) -> list[Any]:
    """The tasks of a plan: what ask --json printed, what export wrote, or a list of tasks."""
    return document_file.plan(document_file.read(file))
