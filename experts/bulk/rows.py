"""Rows of the table of results: one for each input."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experts.bulk.pipeline import PipelineOutput, ResolvedPipeline, ResolvedTask

INPUT, VERSION, SIZE, DIGEST, PIPELINE, ERROR = "input", "version", "size", "digest", "pipeline", "error"
MEDIA_FIELDS = ("content", "media_type", "name")
"""Fields of a column of media that are no files."""
RESERVED = (INPUT, VERSION, SIZE, DIGEST, PIPELINE, ERROR)


def output_column(output: PipelineOutput) -> str:
    """Returns the column of an output: its name, after "output." if another column has that name."""
    return f"output.{output.name}" if output.name in RESERVED else output.name


def model_column(task: ResolvedTask) -> str:
    """Returns the column with the model that ran a task."""
    return f"task{task.id}.model"


def seconds_column(task: ResolvedTask) -> str:
    """Returns the column with the computing time of a task."""
    return f"task{task.id}.seconds"


def columns_of(pipeline: ResolvedPipeline, *, has_files: bool) -> dict[str, str]:
    """Returns the kind of each column that a pipeline adds: "text", "size", "seconds", "error" or "media".

    Args:
        pipeline: the pipeline.
        has_files: whether media are files, so that their columns have paths.
    """
    outputs = {output_column(each): "media" if each.is_file and not has_files else "text" for each in pipeline.outputs}
    tasks = {
        column: kind
        for task in pipeline.tasks
        for column, kind in ((model_column(task), "text"), (seconds_column(task), "seconds"))
    }
    return {SIZE: "size", DIGEST: "text", **outputs, PIPELINE: "text", **tasks, ERROR: "error"}


def to_row(pipeline: ResolvedPipeline, results: Sequence[Mapping[str, Any]], *, has_files: bool) -> dict[str, Any]:
    """Returns the columns of one row.

    Args:
        pipeline: the pipeline.
        results: of its tasks, in their order.
        has_files: whether media are files.
    """
    by_task = {task.id: result for task, result in zip(pipeline.tasks, results, strict=True)}
    size, digest = _digest(each for result in results for each in result["digests"])
    row: dict[str, Any] = {SIZE: size, DIGEST: digest, PIPELINE: pipeline.version}
    for output in pipeline.outputs:
        row[output_column(output)] = _value(by_task[output.task_id]["outputs"].get(output.port), output, has_files)
    for task in pipeline.tasks:
        row[model_column(task)] = by_task[task.id]["model"]
        row[seconds_column(task)] = by_task[task.id]["seconds"]
    row[ERROR] = next((result["error"] for result in results if result["error"]), None)
    return row


def _value(cell: Mapping[str, Any] | None, output: PipelineOutput, has_files: bool) -> Any:
    if not cell:
        return None
    if not output.is_file:
        return cell.get("text")
    if has_files:
        return cell.get("url")
    return {name: cell.get(name) for name in MEDIA_FIELDS} if cell.get("content") is not None else None


def _digest(found: Iterable[Mapping[str, Any]]) -> tuple[int | None, str | None]:
    """Returns the bytes of all inputs that were read, and the digest of the only one, else that of their digests."""
    by_input = {each["input"]: each for each in found}
    if not by_input:
        return None, None
    ordered = [by_input[name] for name in sorted(by_input)]
    size = sum(each["size"] for each in ordered)
    if len(ordered) == 1:
        return size, ordered[0]["sha256"]
    return size, hashlib.sha256("".join(each["sha256"] for each in ordered).encode()).hexdigest()
