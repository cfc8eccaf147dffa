"""Runs the inputs of a job that have no up-to-date result, and writes parts of results as rows end.

Only jobs that have such inputs import this module: it imports Daft and the expert server.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing

import daft
import pyarrow as pa
import pyarrow.compute as pc

from experts.bulk.engine import connect
from experts.bulk.frame import add_tasks
from experts.bulk.job import ErrorLimit, Job
from experts.bulk.pipeline import ResolvedPipeline
from experts.bulk.progress import Progress
from experts.bulk.rows import ERROR, INPUT, VERSION, seconds_column
from experts.bulk.sources import SourceRow
from experts.bulk.stage import Placement, place
from experts.bulk.storage import absolute
from experts.bulk.summary import Summary
from experts.bulk.table import ResultTable
from experts.host.expert import Expert
from services.common.errors import ModelFailed, ServiceError

PART_SECONDS = 10.0
"""Time after which a part is written even if it has few rows."""
PART_BYTES = 128 * 2**20
"""Bytes after which a part is written even if it has few rows; media may be columns."""

_WORKER_FAILED = re.compile(r"WorkerFailed: (\{.*\})")

_VALUE = pa.struct([("url", pa.string()), ("text", pa.string())])


def run_rows(
    rows: Sequence[SourceRow],
    pipeline: ResolvedPipeline,
    experts: Mapping[str, Expert],
    job: Job,
    *,
    table: ResultTable | None,
    summary: Summary,
    progress: Progress,
) -> list[int]:
    """Runs a pipeline on rows, to their end, or until Ctrl-C or too many errors; rows that have ended are written, too.

    Args:
        rows: at least one.
        pipeline: the pipeline.
        experts: by name.
        job: the job.
        table: receives the results; None writes nothing.
        summary: is updated.
        progress: shows how many rows have ended.

    Returns:
        Ids of the tasks that ran on GPUs.

    Raises:
        ServiceError: the engine or a worker cannot run, or the results cannot be written.
    """
    cluster = connect(job.runner)
    placements = {
        name: place(experts[name], cluster, workers=job.workers).spread(len(rows))
        for name in {task.expert for task in pipeline.tasks}
    }
    started_at = time.monotonic()
    frame = add_tasks(
        _to_frame(rows, pipeline, placements, is_cluster=cluster is not None),
        pipeline,
        placements,
        inputs={name: _value_column(name) for name in pipeline.inputs},
        kept=(INPUT, VERSION),
        output=absolute(job.folder) if table and not pipeline.has_media_columns else "",
    )
    progress.start(len(rows))
    with closing(_PartWriter(table, job.part_rows)) as writer:
        _run_frame(frame, pipeline, writer, summary, progress=progress, error_limit=job.error_limit)
    summary.seconds = time.monotonic() - started_at
    return [task.id for task in pipeline.tasks if placements[task.expert].gpus]


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
        rows, size = sum(each.num_rows for each in self._batches), sum(each.nbytes for each in self._batches)
        if rows >= self._part_rows or size >= PART_BYTES or time.monotonic() - self._started_at > PART_SECONDS:
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


def _value_column(name: str) -> str:
    """Column of the values of an input, which has no name of a result's column."""
    return f"__input.{name}"
