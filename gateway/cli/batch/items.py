"""Items of a batch: names, and values of the plan's parameters, from files or a table."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from gateway.cli.batch import manifest
from gateway.cli.batch.manifest import Row
from gateway.cli.batch.parameters import InvalidValue, Parameters, of_text
from gateway.cli.errors import USAGE, Problem
from gateway.cli.terminal import one_line
from gateway.client import FileId, Given, Item, Url


def files_of_folder(folder: Path, out: Path) -> list[Path]:
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


def files_of_patterns(patterns: Sequence[str]) -> list[Path]:
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


NAME = "name"
"""Column of the item names, unless a parameter has this name."""


@dataclass(frozen=True)
class Items:
    """The items, generated on each iteration because they may not fit into memory."""

    count: int
    each: Callable[[], Iterator[Item]]

    def __iter__(self) -> Iterator[Item]:
        return self.each()


def of_files(files: Sequence[Path], parameters: Parameters, given: Mapping[str, Given]) -> Items:
    """Builds an item per file.

    Args:
        files: files of the items.
        parameters: parameters of the plan.
        given: values for all items.

    Raises:
        Problem: it is ambiguous which parameter the files are for.
    """
    into = parameters.for_files(given)
    parameters.check([into, *given], "--set")
    return Items(len(files), lambda: (Item({**given, into: file}, one_line(name)) for name, file in with_names(files)))


def of_manifest(file: Path, parameters: Parameters, given: Mapping[str, Given]) -> Items:
    """Builds an item per row of a table or line of JSON; paths are relative to the file.

    Raises:
        Problem: the file cannot be read, has no items, or does not fit the plan.
    """
    reader = _ItemReader(file.parent, parameters, given)
    count, names = 0, set(given)
    for row in manifest.rows(file):
        names |= reader.item(row).inputs.keys()
        count += 1
    if not count:
        raise Problem(f"{file} has no items", remedy="add at least one item", status=USAGE)
    parameters.check(names, str(file))
    return Items(count, lambda: (reader.item(row) for row in manifest.rows(file)))


def settings(arguments: Sequence[str], parameters: Parameters) -> dict[str, Given]:
    """Parses the values of --set, each as PARAMETER=VALUE.

    Raises:
        Problem: a value is missing, or a parameter is unknown.
    """
    found: dict[str, Given] = {}
    for one in arguments:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise Problem(f"--set {one} has no value", remedy="write PARAMETER=VALUE", status=USAGE)
        parameters.check_name(name, "--set")
        with _explaining_invalid_values(f"--set {name}"):
            found[name] = of_text(text, parameters.modality(name), Path())
    return found


@dataclass(frozen=True)
class _ItemReader:
    folder: Path
    parameters: Parameters
    given: Mapping[str, Given]

    def item(self, row: Row) -> Item:
        own = dict(row.cells)
        name = "" if NAME in (self.parameters.modalities or {}) else str(own.pop(NAME, ""))
        inputs = {key: self._value(row, key, cell) for key, cell in own.items()}
        name = name or next(filter(None, map(self._file, inputs.values())), f"line-{row.line}")
        return Item({**self.given, **inputs}, one_line(name))

    def _file(self, given: Given) -> str:
        match given:
            case Path():
                return str(given.relative_to(self.folder) if given.is_relative_to(self.folder) else given)
            case Url():
                return given.url
            case FileId():
                return given.id
        return ""

    def _value(self, row: Row, name: str, cell: Any) -> Given:
        self.parameters.check_name(name, row.location)
        if name in self.given:
            raise Problem(
                f"{row.location} and --set both have a value for {name}", remedy="give it only once", status=USAGE
            )
        with _explaining_invalid_values(f"{row.location}: {name}"):
            return row.read(cell, self.parameters.modality(name), self.folder)


@contextmanager
def _explaining_invalid_values(where: str) -> Iterator[None]:
    try:
        yield
    except InvalidValue as error:
        raise Problem(f"{where} {error}", remedy="see hugginggpt batch --help", status=USAGE) from error
