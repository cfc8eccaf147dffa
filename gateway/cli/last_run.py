"""Id of the last run started from this home folder, for ask --continue."""

from contextlib import suppress
from pathlib import Path

from gateway.cli.errors import USAGE, Problem
from services.common.settings import home


def remember(run_id: str) -> None:
    """Stores the id of a run; does nothing if the home folder is not writable."""
    with suppress(OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text(run_id + "\n", "utf-8")
        written.replace(file)


def last() -> str:
    """Id of the last run; raises Problem if there is none."""
    with suppress(OSError, UnicodeDecodeError):
        if run_id := _file().read_text("utf-8").strip():
            return run_id
    remedy = "give a run with --after; hugginggpt runs lists them"
    raise Problem("there is no earlier run to continue", remedy=remedy, status=USAGE)


def _file() -> Path:
    return home() / "last-run"
