"""The items of a batch: names, and values for the parameters of its plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.batch import manifest, parameter_values
from gateway.cli.batch.item_files import named
from gateway.cli.batch.manifest import Row
from gateway.cli.batch.parameters import Parameters
from gateway.cli.errors import USAGE, Problem
from gateway.cli.live_view import one_line
from gateway.client import FileId, Given, Item, Url

NAME = "name"
"""The column with what a person would call an item, unless a parameter is called so."""


@dataclass(frozen=True)
class Items:
    """All of them, as often as they are asked for: there may be more than one wants in memory."""

    count: int
    each: Callable[[], Iterator[Item]]

    def __iter__(self) -> Iterator[Item]:
        return self.each()


def of_files(files: Sequence[Path], parameters: Parameters, given: Mapping[str, Given]) -> Items:
    """A file an item.

    Args:
        files: as many as there are.
        parameters: what the plan takes.
        given: values that all items have.

    Raises:
        Problem: it is not clear which parameter the files are for.
    """
    into = parameters.for_files(given)
    parameters.check([into, *given], "--set")
    return Items(len(files), lambda: (Item({**given, into: file}, one_line(name)) for name, file in named(files)))


def of_manifest(file: Path, parameters: Parameters, given: Mapping[str, Given]) -> Items:
    """A line of a table, or of JSON, an item; paths in it begin where it lies.

    Raises:
        Problem: it cannot be read, has no line, or does not fit the plan.
    """
    reading = _Reading(file.parent, parameters, given)
    count, names = 0, set(given)
    for row in manifest.rows(file):
        names |= reading.item(row).inputs.keys()
        count += 1
    if not count:
        raise Problem(f"{file} has no items", remedy="give it one line at least", status=USAGE)
    parameters.check(names, str(file))
    return Items(count, lambda: (reading.item(row) for row in manifest.rows(file)))


def settings(told: Sequence[str], parameters: Parameters) -> dict[str, Given]:
    """What --set says: PARAMETER=VALUE.

    Raises:
        Problem: it says nothing, or of a parameter that there is not.
    """
    found: dict[str, Given] = {}
    for one in told:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise Problem(f"--set {one} names no value", remedy="write PARAMETER=VALUE", status=USAGE)
        parameters.check_name(name, "--set")
        with _fitting(f"--set {name}"):
            found[name] = parameter_values.of_text(text, parameters.modality(name), Path())
    return found


@dataclass(frozen=True)
class _Reading:
    folder: Path
    parameters: Parameters
    given: Mapping[str, Given]

    def item(self, row: Row) -> Item:
        own = dict(row.cells)
        called = "" if NAME in (self.parameters.modalities or {}) else str(own.pop(NAME, ""))
        inputs = {name: self._value(row, name, cell) for name, cell in own.items()}
        called = called or next(filter(None, map(self._file, inputs.values())), f"line-{row.line}")
        return Item({**self.given, **inputs}, one_line(called))

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
        self.parameters.check_name(name, row.place)
        if name in self.given:
            raise Problem(f"{row.place} has {name}, as --set does", remedy="give it once", status=USAGE)
        with _fitting(f"{row.place}: {name}"):
            return row.read(cell, self.parameters.modality(name), self.folder)


@contextmanager
def _fitting(where: str) -> Iterator[None]:
    try:
        yield
    except parameter_values.Unfit as error:
        raise Problem(f"{where} {error}", remedy="see hugginggpt batch --help", status=USAGE) from error
