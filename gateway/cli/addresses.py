"""Experts made known by hand: one file per address, in a folder that the selector reads again every second."""

import re
from pathlib import Path

from gateway.cli.api import Api
from gateway.cli.door import DEFAULT_URL
from gateway.cli.problem import USAGE, NobodyThere, Problem
from services.runtime.settings import home

SUFFIX = ".address"

_ADDRESS = re.compile(r"(dns:///)?(?P<host>[^\s:/,]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def add(address: str, name: str | None) -> str:
    """Writes the address down; gives the name under which it stands."""
    match = _ADDRESS.fullmatch(address)
    if not match:
        raise Problem(f"{address} is no address", remedy="give HOST:PORT or dns:///NAME:PORT", status=USAGE)
    called = name or re.sub(r"[^a-z0-9.-]+", "-", f"{match['host']}-{match['port']}".lower()).strip("-.")
    file = _file(called)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text(address + "\n", "utf-8")
        written.replace(file)  # whole or not at all: the selector may be reading
    except OSError as error:
        raise Problem(f"cannot write {file}: {error.strerror}", remedy="check HUGGINGGPT_HOME") from error
    return called


def forget(name: str, url: str | None) -> None:
    """Removes the address, and has a running house drop what it remembers of the expert.

    Raises:
        Problem: neither is there.
    """
    file = _file(name)
    known = file.is_file()
    file.unlink(missing_ok=True)
    try:
        with Api(url or DEFAULT_URL) as api:
            api.greet()
            api.forget(name)
    except NobodyThere:
        if url or not known:
            raise
    except Problem:
        if not known:
            raise


def _file(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise Problem(f"{name} is no name", remedy="use small letters, digits, dots and hyphens", status=USAGE)
    return home() / "experts" / f"{name}{SUFFIX}"
