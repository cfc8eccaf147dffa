"""Experts made known by hand: one file per address, in a folder that the selector reads again every second."""

import re
from pathlib import Path

from gateway.cli.door import DEFAULT_URL
from gateway.cli.problem import USAGE, Problem
from gateway.client import HuggingGPT, HuggingGPTError, Unreachable
from services.runtime.settings import home

SUFFIX = ".address"
LAST_PORT = 65535

_ADDRESS = re.compile(r"(?P<host>[^\s:/,]+|\[[0-9a-fA-F:]+\]):(?P<port>[1-9]\d{0,4})")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def add(address: str, name: str | None) -> str:
    """Writes the address down; gives the name under which it stands.

    Raises:
        Problem: it is no address, the name cannot be one, or nothing can be written.
    """
    match = _ADDRESS.fullmatch(address)
    if not match or int(match["port"]) > LAST_PORT:
        raise Problem(f"{address} is no address", remedy="give HOST:PORT, such as 127.0.0.1:50061", status=USAGE)
    called = name or re.sub(r"[^a-z0-9.-]+", "-", f"{match['host']}-{match['port']}".lower()).strip("-.")
    if not _NAME.fullmatch(called):
        raise Problem(f"{called} is no name", remedy="use small letters, digits, dots and hyphens", status=USAGE)
    file = _folder() / f"{called}{SUFFIX}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text(address + "\n", "utf-8")
        written.replace(file)  # whole or not at all: the selector may be reading
    except OSError as error:
        raise Problem(f"cannot write {file}: {error.strerror}", remedy="check HUGGINGGPT_HOME") from error
    return called


def forget(name: str, url: str | None, api_key: str | None) -> None:
    """Removes the address, and has a running house drop what it remembers of the expert.

    Args:
        name: the expert's; or the address, or the name it was added under.
        url: the gateway; None for the default address.
        api_key: who asks.

    Raises:
        HuggingGPTError: neither is there.
    """
    there = _folder().glob(f"*{SUFFIX}")
    written = [file for file in there if name in (file.stem, file.read_text("utf-8", "replace").strip())]
    for file in written:
        file.unlink(missing_ok=True)
    try:
        with HuggingGPT(url or DEFAULT_URL, api_key) as house:
            house.greet()
            house.forget(name)
    except Unreachable:
        if url or not written:
            raise
    except HuggingGPTError:
        if not written:
            raise


def _folder() -> Path:
    return home() / "experts"
