"""Runs a job: lists its inputs, leaves out those that are done, and runs the others."""

from collections.abc import Sequence

from experts.bulk.job import MIN_ROWS, Job
from experts.bulk.pipeline import read_experts, resolve
from experts.bulk.progress import Progress
from experts.bulk.sources import limit_rows, read_rows
from experts.bulk.storage import OutputFolder, file_name, is_folder
from experts.bulk.summary import Summary
from experts.bulk.table import ResultTable, to_csv, to_json_lines


def run_job(job: Job, progress: Progress) -> Summary:
    """Runs a job to its end, or until Ctrl-C or too many errors; rows that have ended are then written, too.

    Raises:
        ServiceError: it cannot start, or the results cannot be written.
    """
    experts = read_experts(job.experts)
    pipeline = resolve(job.pipeline, experts, values=job.values, policy=job.policy, media=job.media)
    progress.note("listing the inputs")
    rows = limit_rows(read_rows(job.sources, pipeline), job.limit)
    table = _open_table(job)
    completed = table.completed(pipeline.version) if table else {}
    pending = [row for row in rows if completed.get(row.input) != row.version]
    summary = Summary(
        pipeline.version, len(rows), len(rows) - len(pending), models=[task.model_name for task in pipeline.tasks]
    )
    on_gpus: list[int] = []
    if running := pending[:MIN_ROWS] if job.dry_run else pending:
        from experts.bulk.execution import run_rows

        written = None if job.dry_run else table
        on_gpus = run_rows(running, pipeline, experts, job, table=written, summary=summary, progress=progress)
    if job.dry_run:
        summary.forecast = _forecast(summary, progress.seconds_per_row, len(pending), on_gpus, job.gpu_hour_price)
    elif table:
        if completed:
            table.remove_superseded()
        if job.file:
            _write_file(job.file, table)
    return summary


def _open_table(job: Job) -> ResultTable | None:
    """Opens the table of results, and creates its folder; None for a trial run without one."""
    if job.dry_run and not (job.to and is_folder(job.folder)):
        return None
    return ResultTable(OutputFolder(job.folder))


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
