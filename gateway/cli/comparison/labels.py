"""Reads the table of expected answers."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.cli.errors import USAGE, Problem
from gateway.client import Source

COLUMNS = ("file", "label")


def labels(table: Path, files: Sequence[Source]) -> list[str | None]:
    """The expected answer of each file; None if the table lacks the file.

    Args:
        table: CSV with the columns file and label; a file is a path relative to the table, or a file name.
        files: files of the comparison.

    Raises:
        Problem: the table cannot be read, lacks a column, or lacks all files.
    """
    label_by_file = _read(table)
    found = [_label(label_by_file, table.parent, file) for file in files]
    if all(label is None for label in found):
        raise Problem(f"{table} has none of the files", remedy="check its column file", status=USAGE)
    return found


def _read(table: Path) -> Mapping[str, str]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
                columns = ", ".join(reader.fieldnames or ()) or "none"
                raise _invalid(f"{table} has no column {missing[0]}", f"its columns are: {columns}")
            label_by_file: dict[str, str] = {}
            for row in reader:
                if row["file"] in label_by_file:
                    raise _invalid(
                        f"line {reader.line_num} of {table} repeats {row['file']}", "remove one of the lines"
                    )
                label_by_file[row["file"]] = row["label"] or ""
            return label_by_file
    except OSError as error:
        raise _invalid(f"cannot read {table}: {error.strerror}", "check --labels") from error
    except UnicodeDecodeError as error:
        raise _invalid(f"{table} is not UTF-8", "save it as UTF-8") from error
    except csv.Error as error:
        raise _invalid(f"{table} is not a valid table: {error}", "check its quotes") from error


def _label(label_by_file: Mapping[str, str], folder: Path, file: Source) -> str | None:
    if isinstance(file, Path):
        path = file.resolve()
        by_path = {(folder / name).resolve(): label for name, label in label_by_file.items()}
        return label_by_file.get(str(file), by_path.get(path, label_by_file.get(file.name)))
    return label_by_file.get(str(file))


def _invalid(what: str, remedy: str) -> Problem:
    return Problem(what, remedy=remedy, status=USAGE)
