"""Finds the files of a batch, in a folder or by patterns."""

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from gateway.cli.errors import USAGE, Problem


def of_folder(folder: Path, out: Path) -> list[Path]:
    """Finds all files of a folder and its subfolders, sorted by path, except hidden ones and the output folder.

    Raises:
        Problem: the folder cannot be read, or has no files.
    """
    found: list[Path] = []
    results = out.resolve()
    for path, folders, names in os.walk(folder, onerror=_unreadable):
        here = Path(path)
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() != results]
        found += [here / name for name in names if not name.startswith(".")]
    if not found:
        raise Problem(f"{folder} has no files", remedy="check --folder", status=USAGE)
    return sorted(found)


def of_patterns(patterns: Sequence[str]) -> list[Path]:
    """Finds the files that match patterns, without duplicates, sorted by path within each pattern.

    Raises:
        Problem: a pattern matches no file.
    """
    return list(dict.fromkeys(file for pattern in patterns for file in _matching(pattern)))


def with_names(files: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yields files with their item names: the path relative to the common folder."""
    if not files:
        return
    common = os.path.commonpath([os.path.abspath(file.parent) for file in files])  # noqa: PTH100  # does not resolve symbolic links
    for file in files:
        name = os.path.relpath(file, common)
        yield os.fsencode(name).decode(errors="replace"), file  # names on disk may be invalid UTF-8


def _matching(pattern: str) -> list[Path]:
    if Path(pattern).is_file() or not has_magic(pattern):
        found = [Path(pattern)] if os.path.lexists(pattern) else []
    else:
        found = sorted(file for file in map(Path, glob(pattern, recursive=True)) if not file.is_dir())  # noqa: PTH207  # a pattern may be an absolute path
    if not found:
        raise Problem(f"no file matches {pattern}", remedy="check --files", status=USAGE)
    if found[0].is_dir():
        raise Problem(f"{pattern} is a folder", remedy=f"use --folder {pattern}", status=USAGE)
    return found


def _unreadable(error: OSError) -> None:
    raise Problem(f"cannot read {error.filename}: {error.strerror}", remedy="check --folder", status=USAGE) from error
