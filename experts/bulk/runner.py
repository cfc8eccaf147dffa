"""Runs a job: lists its inputs, leaves out those that are done, runs the others, and writes parts as rows end."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import daft
import pyarrow as pa
import pyarrow.compute as pc

from experts.bulk.engine import connect
from experts.bulk.frame import add_tasks
from experts.bulk.job import MIN_ROWS, ErrorLimit, Job
from experts.bulk.pipeline import ResolvedPipeline, read_experts, resolve
from experts.bulk.progress import Progress
from experts.bulk.rows import ERROR, INPUT, VERSION, seconds_column
from experts.bulk.sources import SourceRow, limit_rows, read_rows
from experts.bulk.stage import Placement, place
from experts.bulk.storage import OutputFolder, absolute, file_name
from experts.bulk.table import ResultTable, to_csv, to_json_lines
from services.common.errors import ModelFailed, ServiceError

PART_SECONDS = 10.0
"""Time after which a part is written even if it has few rows."""

_WORKER_FAILED = re.compile(r"WorkerFailed: (\{.*\})")

_VALUE = pa.struct([("url", pa.string()), ("text", pa.string())])


@dataclass
class Summary:
    """What a job did."""

    pipeline: str
    inputs: int
    skipped: int
    """Inputs whose results were up to date."""
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    is_stopped: bool = False
    """Whether it ended because of too many errors."""
    is_interrupted: bool = False
    models: Sequence[str] = ()
    task_seconds: dict[int, float] = field(default_factory=dict)
    """Computing time by task."""
    forecast: Mapping[str, float] | None = None
    """Of a trial run: seconds, and GPU hours, for all inputs that are not up to date."""

    @property
    def status(self) -> int:
        """Exit status: 0 if every input has a result, 130 after Ctrl-C, otherwise 1."""
        if self.is_interrupted:
            return 130
        return 1 if self.failed or self.is_stopped else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "models": list(self.models),
            "inputs": self.inputs,
            "skipped": self.skipped,
            "done": self.done,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "task_seconds": {str(task): round(seconds, 3) for task, seconds in self.task_seconds.items()},
            "stopped": self.is_stopped,
            "interrupted": self.is_interrupted,
            **({"forecast": self.forecast} if self.forecast else {}),
        }


def run_job(job: Job, progress: Progress) -> Summary:
    """Runs a job to its end, or until Ctrl-C or too many errors; rows that have ended are then written, too.

    Raises:
        ServiceError: it cannot start, or the results cannot be written.
    """
    experts = read_experts(job.experts)
    pipeline = resolve(job.pipeline, experts, values=job.values, policy=job.policy)
    progress.note("listing the inputs")
    rows = limit_rows(read_rows(job.sources, pipeline), job.limit)
    table = ResultTable(OutputFolder(job.folder)) if job.to else None
    completed = table.completed(pipeline.version) if table else {}
    pending = [row for row in rows if completed.get(row.input) != row.version]
    summary = Summary(
        pipeline.version, len(rows), len(rows) - len(pending), models=[task.model_name for task in pipeline.tasks]
    )
    running = pending[:MIN_ROWS] if job.dry_run else pending
    cluster = connect(job.runner) if running else None
    used = {task.expert: experts[task.expert] for task in pipeline.tasks}
    placements = {
        name: place(expert, cluster, workers=job.workers).spread(len(running)) for name, expert in used.items()
    }
    started_at = time.monotonic()
    if running:
        frame = add_tasks(
            _to_frame(running, pipeline, placements, is_cluster=cluster is not None),
            pipeline,
            placements,
            inputs={name: _value_column(name) for name in pipeline.inputs},
            kept=(INPUT, VERSION),
            output="" if job.dry_run else absolute(job.folder),
        )
        progress.start(len(running))
        with closing(_PartWriter(None if job.dry_run else table, job.part_rows)) as writer:
            _run_frame(frame, pipeline, writer, summary, progress=progress, error_limit=job.error_limit)
    summary.seconds = time.monotonic() - started_at
    if job.dry_run:
        on_gpus = [task.id for task in pipeline.tasks if placements[task.expert].gpus]
        summary.forecast = _forecast(summary, progress.seconds_per_row, len(pending), on_gpus, job.gpu_hour_price)
    elif table:
        if completed:
            table.remove_superseded()
        if job.file:
            _write_file(job.file, table)
    return summary


def _run_frame(
    frame: daft.DataFrame,
    pipeline: ResolvedPipeline,
    writer: "_PartWriter",
    summary: Summary,
    *,
    progress: Progress,
    error_limit: ErrorLimit,
) -> None:
    """Runs a frame, and adds what it did to the summary."""
    try:
        for batch in frame.to_arrow_iter():
            writer.add(batch)
            _count(summary, batch, pipeline)
            progress.show(summary.done, summary.failed)
            if error_limit.is_reached(summary.failed, summary.done):
                summary.is_stopped = True
                break
    except KeyboardInterrupt:
        summary.is_interrupted = True
    except ServiceError:
        raise
    except Exception as error:
        raise _worker_error(error) from error


def _worker_error(error: Exception) -> ServiceError:
    """Returns the error that ended a worker; Daft has turned it into text."""
    text = str(error)
    if found := _WORKER_FAILED.search(text):
        described = json.loads(found[1])
        return ModelFailed(described["message"], remedy=described["remedy"])
    cause = text.strip().rpartition("\n")[2]
    return ModelFailed(
        f"a worker process ended: {cause}",
        remedy="the same command continues with the rows that are missing; fewer --workers need less memory",
    )


def _to_frame(
    rows: Sequence[SourceRow], pipeline: ResolvedPipeline, placements: Mapping[str, Placement], *, is_cluster: bool
) -> daft.DataFrame:
    columns = {INPUT: pa.array([row.input for row in rows]), VERSION: pa.array([row.version for row in rows])}
    for name in pipeline.inputs:
        columns[_value_column(name)] = pa.array([row.values.get(name) for row in rows], _VALUE)
    frame = daft.from_arrow(pa.table(columns))
    if is_cluster:  # a partition is the unit of work of a cluster
        calls = -(-len(rows) // min(each.rows for each in placements.values()))
        frame = frame.into_partitions(calls)
    return frame


class _PartWriter:
    """Collects rows and writes them as parts.

    Args:
        table: the table; None writes nothing.
        part_rows: rows of a part.
    """

    def __init__(self, table: ResultTable | None, part_rows: int) -> None:
        self._table, self._part_rows = table, part_rows
        self._batches: list[pa.RecordBatch] = []
        self._started_at = time.monotonic()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows; writes a part if there are enough, or enough time has passed."""
        self._batches.append(batch)
        rows = sum(each.num_rows for each in self._batches)
        if rows >= self._part_rows or time.monotonic() - self._started_at > PART_SECONDS:
            self.close()

    def close(self) -> None:
        """Writes the rows that have been added."""
        batches, self._batches = self._batches, []
        if self._table and batches:
            self._table.append(pa.Table.from_batches(batches))
        self._started_at = time.monotonic()


def _count(summary: Summary, batch: pa.RecordBatch, pipeline: ResolvedPipeline) -> None:
    summary.done += batch.num_rows
    codes = pc.struct_field(batch.column(ERROR), "code")
    summary.failed += len(codes) - codes.null_count
    for task in pipeline.tasks:
        seconds = pc.sum(batch.column(seconds_column(task))).as_py() or 0.0
        summary.task_seconds[task.id] = summary.task_seconds.get(task.id, 0.0) + seconds


def _forecast(
    summary: Summary, seconds_per_row: float, rows: int, on_gpus: Sequence[int], price: float
) -> dict[str, float]:
    """Returns what all rows would take, by what the trial run took.

    Args:
        summary: of the trial run.
        seconds_per_row: time of a row.
        rows: number of all rows.
        on_gpus: ids of the tasks that run on GPUs.
        price: of an hour of one GPU; 0 for none.
    """
    gpu_seconds = sum(summary.task_seconds.get(task_id, 0.0) for task_id in on_gpus) / max(1, summary.done)
    gpu_hours = gpu_seconds * rows / 3600
    forecast = {"rows": rows, "seconds": round(seconds_per_row * rows, 1), "gpu_hours": round(gpu_hours, 3)}
    if price:
        forecast["cost"] = round(gpu_hours * price, 2)
    return forecast


def _write_file(file: str, table: ResultTable) -> None:
    """Writes the table as the one file that the job names."""
    lines = to_json_lines(table.rows()) if file.endswith(".jsonl") else to_csv(table.rows(), table.columns())
    name = file_name(file)
    folder = OutputFolder(file.removesuffix(name) or ".")
    folder.write_chunks(name, lines)


def _value_column(name: str) -> str:
    """Column of the values of an input, which has no name of a result's column."""
    return f"__input.{name}"
