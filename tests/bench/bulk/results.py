"""Results that the programs have written: their number, and that of the errors among them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

LINES = "results.jsonl"
"""File of a batch of the services."""


@dataclass(frozen=True)
class Counts:
    """Numbers of results."""

    rows: int
    errors: int


def count_results(out: Path) -> Counts:
    """Counts the results in a file of JSON lines, or in the complete files of a folder."""
    errors = [bool(row["error"]) for row in _rows(out)]
    return Counts(len(errors), sum(errors))


def _rows(out: Path) -> Iterator[Mapping[str, Any]]:
    lines = next(out.rglob(LINES), out)
    if lines.is_file():
        yield from map(json.loads, lines.read_text(encoding="utf-8").splitlines())
    for file in out.rglob("*.parquet"):
        with suppress(pa.ArrowInvalid):  # a program that was killed has not completed it
            yield from pq.ParquetFile(file).read(columns=["error"]).to_pylist()
