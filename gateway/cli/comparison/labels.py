"""A table that says what is right for each file."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.cli.errors import USAGE, Problem
from gateway.client import Source

COLUMNS = ("file", "label")


def labels(table: Path, files: Sequence[Source]) -> list[str | None]:
    """What is right for each file; None where the table does not name it.

    Args:
        table: CSV with the columns file and label; a path begins where the table lies, or is just a file's name.
        files: as they are compared.

    Raises:
        Problem: it cannot be read, lacks a column, or names none of the files.
    """
    told = _read(table)
    found = [_label(told, table.parent, file) for file in files]
    if all(label is None for label in found):
        raise Problem(f"{table} names none of the files", remedy="check its column file", status=USAGE)
    return found


def _read(table: Path) -> Mapping[str, str]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
                there = ", ".join(reader.fieldnames or ()) or "nothing"
                raise _wrong(f"{table} has no column {missing[0]}", f"its first line has {there}")
            told: dict[str, str] = {}
            for row in reader:
                if row["file"] in told:
                    raise _wrong(f"line {reader.line_num} of {table} names {row['file']} again", "keep one of both")
                told[row["file"]] = row["label"] or ""
            return told
    except OSError as error:
        raise _wrong(f"cannot read {table}: {error.strerror}", "check --labels") from error
    except UnicodeDecodeError as error:
        raise _wrong(f"{table} is not UTF-8", "save it as UTF-8") from error
    except csv.Error as error:
        raise _wrong(f"{table} is no table: {error}", "check its quotes") from error


def _label(told: Mapping[str, str], folder: Path, file: Source) -> str | None:
    if isinstance(file, Path):
        here = file.resolve()
        named = {(folder / name).resolve(): label for name, label in told.items()}
        return told.get(str(file), named.get(here, told.get(file.name)))
    return told.get(str(file))


def _wrong(what: str, remedy: str) -> Problem:
    return Problem(what, remedy=remedy, status=USAGE)
