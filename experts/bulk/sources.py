"""Inputs of a job: files of folders and patterns, objects of a store, and rows of tables.

A row has an identity (`input`: its path or URL, or the table and the number of the row) and a version, which changes
when its content does: size and modification time of a file, ETag and size of an object, the values of a table's row.
"""

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from itertools import islice
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import obstore
import pyarrow.parquet as pq

from experts.bulk.pipeline import ResolvedPipeline
from experts.bulk.storage import (
    absolute,
    is_remote,
    local_path,
    object_errors,
    open_bucket,
    open_object,
    read_file,
    split_object_url,
)
from services.common.errors import InvalidRequest, NotFound

TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")

_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class SourceRow:
    """One input of the job."""

    input: str
    version: str
    values: Mapping[str, Mapping[str, str]]
    """Values of the pipeline's inputs by name, each with the key "url" or "text"."""


def read_rows(sources: Iterable[str], pipeline: ResolvedPipeline) -> Iterator[SourceRow]:
    """Lists the inputs of a job; one that several sources have is listed once.

    Args:
        sources: folders, patterns, files, object URLs, and tables, whose columns are inputs of the pipeline.
        pipeline: the pipeline.

    Raises:
        InvalidRequest: a source cannot be read, or does not match the pipeline's inputs.
        NotFound: FILE, a source does not exist or has no files.
    """
    seen: set[str] = set()
    for source in sources:
        is_table = source.lower().endswith(TABLES) and not _MAGIC.search(source)
        rows = _table_rows(source, pipeline) if is_table else _file_rows(source, pipeline)
        for row in rows:
            if row.input not in seen:
                seen.add(row.input)
                yield row


# ---------------------------------------------------------------- files


def _file_rows(source: str, pipeline: ResolvedPipeline) -> Iterator[SourceRow]:
    name = _only_input(pipeline)
    found = 0
    for url, version in _list_objects(source) if is_remote(source) else _list_files(source):
        found += 1
        yield SourceRow(url, version, {name: {"url": url}})
    if not found:
        raise NotFound(f"{source} has no files", reason="FILE", remedy="check the path or pattern of --from")


def _only_input(pipeline: ResolvedPipeline) -> str:
    """Returns the input that takes files."""
    required = [name for name, is_required in pipeline.inputs.items() if is_required]
    names = required or list(pipeline.inputs)
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise InvalidRequest(
            f"files can be only one input of a pipeline; {pipeline.name} has {listed}",
            remedy="give the others with --set NAME=VALUE, or give a table with a column for each input",
        )
    return names[0]


def _list_files(source: str) -> Iterator[tuple[str, str]]:
    """Yields path and version of local files, sorted by path; hidden ones only if the pattern names them."""
    path = Path(absolute(source))
    if _MAGIC.search(source):
        paths: Iterable[str] = sorted(glob(str(path), recursive=True))  # noqa: PTH207  # as below
    elif path.is_dir():
        paths = _walk(path)
    else:
        paths = [str(path)]
    for each in paths:
        try:
            status = os.stat(each)  # noqa: PTH116  # faster than a Path for each of many files
        except FileNotFoundError:
            raise NotFound(f"{each} does not exist", reason="FILE", remedy="check the path of --from") from None
        if not S_ISDIR(status.st_mode):
            yield each, f"{status.st_size}:{status.st_mtime_ns}"


def _walk(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield from (os.path.join(path, name) for name in sorted(names) if not name.startswith("."))  # noqa: PTH118  # as above


def _list_objects(source: str) -> Iterator[tuple[str, str]]:
    """Yields URL and version of the objects of a pattern or folder, or of the only one."""
    bucket, key = split_object_url(source)
    magic = _MAGIC.search(key)
    prefix = key[: magic.start()].rpartition("/")[0] if magic else key.rstrip("/")
    pattern = _to_expression(key) if magic else None
    with object_errors(source, "list"):
        for page in obstore.list(open_bucket(bucket), prefix=prefix or None):
            for each in page:
                path = each["path"]
                if pattern.fullmatch(path) if pattern else not _is_hidden(path, prefix):
                    yield f"{bucket}/{path}", f"{each['size']}:{each['e_tag'] or each['last_modified'].isoformat()}"


def _is_hidden(path: str, prefix: str) -> bool:
    return any(part.startswith(".") for part in path.removeprefix(prefix).split("/"))


def _to_expression(pattern: str) -> re.Pattern[str]:
    """Returns the expression of a pattern with *, ?, [...] within a folder and ** for any folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    known = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts))


# ---------------------------------------------------------------- tables


def _table_rows(source: str, pipeline: ResolvedPipeline) -> Iterator[SourceRow]:
    source = absolute(source)
    folder = "" if is_remote(source) else str(Path(source).parent)
    for number, cells in enumerate(_read_table(source), start=1):
        where = f"{source}#{number}"
        if number == 1:
            _check_columns(source, cells, pipeline)
        given = {name: cells[name] for name in pipeline.inputs if cells.get(name) not in {None, ""}}
        values = {
            name: {"text": _to_text(cell)} if name in pipeline.texts else {"url": _in_folder(folder, str(cell))}
            for name, cell in given.items()
        }
        yield SourceRow(where, _version(values), values)


def _check_columns(source: str, cells: Mapping[str, Any], pipeline: ResolvedPipeline) -> None:
    missing = [name for name, is_required in pipeline.inputs.items() if is_required and name not in cells]
    if missing:
        raise InvalidRequest(
            f"{source} has no column {missing[0]}; its columns are {', '.join(cells)}",
            remedy=f"name a column for each input of {pipeline.name}: {', '.join(pipeline.inputs)}",
        )


def _read_table(source: str) -> Iterator[Mapping[str, Any]]:
    try:
        if source.lower().endswith(".parquet"):
            yield from _read_parquet(source)
            return
        text = read_file(source).decode("utf-8-sig")
        if source.lower().endswith((".csv", ".tsv")):
            delimiter = "\t" if source.lower().endswith(".tsv") else ","
            yield from csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
            return
        for line in text.splitlines():
            if line.strip():
                yield dict(json.loads(line))
    except (ValueError, TypeError, OSError, csv.Error) as error:
        raise InvalidRequest(f"cannot read the table {source}: {error}", remedy="check the file of --from") from error


def _read_parquet(source: str) -> Iterator[Mapping[str, Any]]:
    file = open_object(source) if is_remote(source) else local_path(source)
    for batch in pq.ParquetFile(file).iter_batches():
        yield from batch.to_pylist()


def _to_text(cell: Any) -> str:
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)


def _in_folder(folder: str, path: str) -> str:
    """Returns a path of a table's cell; relative ones start at the table's folder."""
    return path if is_remote(path) or not folder else os.path.join(folder, path.removeprefix("file://"))  # noqa: PTH118


def _version(values: Mapping[str, Mapping[str, str]]) -> str:
    """Returns what changes with the values of a table's row, and with the local files that they name."""
    described: list[Any] = [values]
    for value in values.values():
        if "url" in value and not is_remote(value["url"]):
            try:
                status = Path(value["url"]).stat()
            except OSError:
                described.append(None)  # the row's error names it
            else:
                described.append((status.st_size, status.st_mtime_ns))
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]


def limit_rows(rows: Iterator[SourceRow], limit: int) -> list[SourceRow]:
    """Returns the first rows; all of them if the limit is 0."""
    return list(islice(rows, limit)) if limit else list(rows)
