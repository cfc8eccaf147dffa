"""The table of results: Parquet parts in a folder or object store, each written completely or not at all.

Rows are keyed by input, version of the input, and pipeline version. A row that is computed again is first written to a
new part; then the older parts are rewritten without it. If the process ends in between, the newer row counts.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from experts.bulk.rows import ERROR, INPUT, PIPELINE, VERSION
from experts.bulk.storage import OutputFolder

_PART = re.compile(r"part-(\d{6,})-[0-9a-f]{8}\.parquet")
_KEYS = (INPUT, VERSION, PIPELINE)
_ERROR_FIELDS = ("code", "message", "remedy", "task")


class ResultTable:
    """Table of results in a folder.

    Args:
        folder: its folder.
    """

    def __init__(self, folder: OutputFolder) -> None:
        self._folder = folder
        self._parts = [name for name in folder.names() if _PART.fullmatch(name)]

    @property
    def parts(self) -> Sequence[str]:
        """Names of its parts, oldest first."""
        return tuple(self._parts)

    def completed(self, pipeline: str) -> dict[str, str]:
        """Returns the version of each input that the pipeline version has processed without an error, by input."""
        newest: dict[str, str] = {}
        for part in reversed(self._parts):
            for batch in self._read_batches(part, [*_KEYS, f"{ERROR}.code"]):
                codes = batch.column(ERROR).field("code").to_pylist()
                columns = (batch.column(name).to_pylist() for name in _KEYS)
                for name, version, of_pipeline, code in zip(*columns, codes, strict=True):
                    newest.setdefault(name, version if code is None and of_pipeline == pipeline else "")
        return newest

    def append(self, rows: pa.Table) -> None:
        """Writes rows as a new part."""
        last = int(_PART.fullmatch(self._parts[-1])[1]) if self._parts else 0  # type: ignore[index]  # as listed
        name = f"part-{last + 1:06}-{uuid4().hex[:8]}.parquet"
        self._write(name, rows)
        self._parts.append(name)

    def remove_superseded(self) -> None:
        """Removes rows whose input has a newer row."""
        newer: set[str] = set()
        for part in reversed(self._parts[:]):
            inputs = [each for batch in self._read_batches(part, [INPUT]) for each in batch.column(INPUT).to_pylist()]
            if not newer.isdisjoint(inputs):
                self._rewrite(part, pa.array([each not in newer for each in inputs]))
            newer.update(inputs)

    def columns(self) -> list[str]:
        """Names of the columns of all parts, in the order of the newest: pipeline versions differ in theirs."""
        return list(dict.fromkeys(name for part in reversed(self._parts) for name in self._schema(part).names))

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yields all rows, oldest part first."""
        for part in self._parts:
            yield from self._read(part).to_pylist()

    def _rewrite(self, part: str, keep: pa.Array) -> None:
        rows = self._read(part).filter(keep)
        if rows.num_rows:
            self._write(part, rows)
        else:
            self._folder.delete(part)
            self._parts.remove(part)

    def _read(self, part: str, columns: Sequence[str] | None = None) -> pa.Table:
        return pq.ParquetFile(self._folder.open(part)).read(columns)

    def _read_batches(self, part: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return pq.ParquetFile(self._folder.open(part)).iter_batches(columns=columns)  # type: ignore[no-any-return]

    def _schema(self, part: str) -> pa.Schema:
        return pq.read_schema(self._folder.open(part))

    def _write(self, name: str, rows: pa.Table) -> None:
        buffer = pa.BufferOutputStream()
        pq.write_table(rows, buffer)
        self._folder.write(name, buffer.getvalue().to_pybytes())


def to_json_lines(rows: Iterator[Mapping[str, Any]]) -> Iterator[bytes]:
    """Converts rows to JSON lines."""
    for row in rows:
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"


def to_csv(rows: Iterator[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[bytes]:
    """Converts rows to CSV with a header; the fields of an error have columns of their own."""
    names = [*(name for name in columns if name != ERROR), *(f"{ERROR}.{field}" for field in _ERROR_FIELDS)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    for row in rows:
        writer.writerow(_flatten(row))
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    error = row[ERROR] or {}
    return {
        **{name: value for name, value in row.items() if name != ERROR},
        **{f"{ERROR}.{field}": error.get(field) for field in _ERROR_FIELDS},
    }
