"""What is to be sent: looked at before anything is."""

import json
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gateway.cli.problem import USAGE, Problem

LIMIT_BYTES = 100 * 1000 * 1000
"""What a gateway takes with one request, unless its operator says otherwise."""


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


def check_files(files: Iterable[Path]) -> None:
    """Raises Problem for the first file that cannot be sent, or if they are too much together."""
    total = sum(_size(file) for file in files)
    if total > LIMIT_BYTES:
        raise Problem(
            f"the files are {total / 1e6:.0f} MB, more than the {LIMIT_BYTES / 1e6:.0f} MB that go with one request",
            remedy="send smaller or fewer files",
            status=USAGE,
        )


def _size(file: Path) -> int:
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise Problem(f"{file} is {what}", remedy="send its files one by one, each with --file", status=USAGE)
        with file.open("rb"):
            pass
    except OSError as error:
        raise Problem(f"cannot read {file}: {error.strerror}", remedy="check --file", status=USAGE) from error
    if not status.st_size:
        raise Problem(f"{file} is empty", remedy="send a file with something in it", status=USAGE)
    return status.st_size


def read_plan(file: Path) -> list[Any]:
    """The tasks of a plan: a list of tasks, or an object that has one under "plan", as ask --json prints it."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise Problem(f"cannot read {file}: {error.strerror}", remedy="check --plan", status=USAGE) from error
    except (ValueError, RecursionError) as error:
        raise Problem(f"{file} is not JSON: {error}", remedy="give what ask --json printed", status=USAGE) from error
    plan = content.get("plan") if isinstance(content, dict) else content
    if not isinstance(plan, list) or not plan:
        raise Problem(f"{file} holds no plan", remedy="give a list of tasks, or what ask --json printed", status=USAGE)
    return plan
