"""Bulk jobs in a process of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]

CLASSIFY: Mapping[str, Any] = {
    "format": "hugginggpt/pipeline/1",
    "name": "classify",
    "plan": [
        {"id": 1, "task": "summarization", "args": {"text": {"input": "letter"}}},
        {"id": 2, "task": "text-classification", "args": {"text": {"task_id": 1, "output": "text"}}},
        {"id": 3, "task": "text-statistics", "args": {"text": {"input": "letter"}}},
    ],
}
"""A pipeline of quick tasks."""


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended."""

    status: int
    summary: Mapping[str, Any]
    errors: str


def write_job(folder: Path, sources: Sequence[str | Path], to: str | Path, **fields: Any) -> Path:
    """Writes a job file that runs CLASSIFY, unless the fields have another pipeline."""
    file = folder / "job.json"
    content = {"pipeline": CLASSIFY, "sources": list(map(str, sources)), "to": str(to), "as_json": True, **fields}
    file.write_text(json.dumps(content))
    return file


def start_job(file: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts a job in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "experts.bulk", str(file)],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_job(
    folder: Path,
    sources: Sequence[str | Path],
    to: str | Path,
    environment: Mapping[str, str] | None = None,
    **fields: Any,
) -> EndedJob:
    """Runs a job to its end."""
    with start_job(write_job(folder, sources, to, **fields), environment) as process:
        out, errors = process.communicate()
    return EndedJob(process.returncode, json.loads(out) if out.strip() else {}, errors)


def read_table(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the rows of a table by the file name of their input."""
    rows = [row for part in sorted(folder.glob("part-*.parquet")) for row in pq.ParquetFile(part).read().to_pylist()]
    assert len({row["input"] for row in rows}) == len(rows), "an input has two rows"
    return {row["input"].rpartition("/")[2]: row for row in rows}
