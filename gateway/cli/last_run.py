"""Which run was asked for last from this home, so that it can be continued without its id."""

from contextlib import suppress
from pathlib import Path

from gateway.cli.errors import USAGE, Problem
from services.common.settings import home


def remember(run_id: str) -> None:
    """Best effort: where nothing can be written, nothing is remembered."""
    with suppress(OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text(run_id + "\n", "utf-8")
        written.replace(file)


def last() -> str:
    """Its id; raises Problem if there is none."""
    with suppress(OSError, UnicodeDecodeError):
        if run_id := _file().read_text("utf-8").strip():
            return run_id
    remedy = "name one with --after; hugginggpt runs lists them"
    raise Problem("nothing was asked from here before", remedy=remedy, status=USAGE)


def _file() -> Path:
    return home() / "last-run"
