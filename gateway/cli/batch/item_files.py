"""Files that are to be items: those of a folder, or those that patterns fit."""

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from gateway.cli.errors import USAGE, Problem


def of_folder(folder: Path, out: Path) -> list[Path]:
    """All files of a folder and those below it, by name, but hidden ones and what lies in out.

    Raises:
        Problem: it cannot be read, or has none.
    """
    found: list[Path] = []
    results = out.resolve()
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        here = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() != results]
        found += [here / name for name in names if not name.startswith(".")]
    if not found:
        raise Problem(f"{folder} has no files", remedy="check --folder", status=USAGE)
    return sorted(found)


def of_patterns(patterns: Sequence[str]) -> list[Path]:
    """The files that each pattern fits, by name, those of the first pattern first, none twice.

    Raises:
        Problem: one fits none.
    """
    return list(dict.fromkeys(file for pattern in patterns for file in _fitting(pattern)))


def named(files: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Files with their names: as much of the path as tells them apart."""
    if not files:
        return
    common = os.path.commonpath([os.path.abspath(file.parent) for file in files])  # noqa: PTH100  # as it is written: links stay
    for file in files:
        name = os.path.relpath(file, common)
        yield os.fsencode(name).decode(errors="replace"), file  # a name on disk need be no text


def _fitting(pattern: str) -> list[Path]:
    if Path(pattern).is_file() or not has_magic(pattern):
        found = [Path(pattern)] if os.path.lexists(pattern) else []
    else:
        found = sorted(file for file in map(Path, glob(pattern, recursive=True)) if not file.is_dir())  # noqa: PTH207  # a pattern may begin at the root
    if not found:
        raise Problem(f"no file fits {pattern}", remedy="check --files", status=USAGE)
    if found[0].is_dir():
        raise Problem(f"{pattern} is a folder", remedy=f"write --folder {pattern}", status=USAGE)
    return found


def _unreadable(error: OSError) -> None:
    raise Problem(f"cannot read {error.filename}: {error.strerror}", remedy="check --folder", status=USAGE) from error
