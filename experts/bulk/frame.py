"""A pipeline as columns of a Daft DataFrame: each of its stages is a class, whose instances hold the models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import daft
import yaml
from daft import DataType

from experts.bulk.pipeline import DEFAULT_EXPERTS, ResolvedPipeline, ResolvedTask, read_experts, resolve
from experts.bulk.rows import MEDIA_FIELDS, columns_of, to_row
from experts.bulk.stage import Placement, Stage, StageWorker, place, split_stages
from experts.bulk.worker import WorkerOptions
from experts.host.devices import usable_cores
from experts.host.settings import Settings
from services.common.errors import InvalidRequest
from services.common.settings import from_environment

_CELL = DataType.struct(
    {
        "url": DataType.string(),
        "text": DataType.string(),
        "content": DataType.binary(),
        "media_type": DataType.string(),
        "name": DataType.string(),
    }
)
_MEDIA = DataType.struct({name: DataType.binary() if name == "content" else DataType.string() for name in MEDIA_FIELDS})
_DIGEST = DataType.struct({"input": DataType.string(), "sha256": DataType.string(), "size": DataType.int64()})
_ERROR = DataType.struct(
    {"code": DataType.string(), "message": DataType.string(), "remedy": DataType.string(), "task": DataType.int64()}
)
_TYPES = {
    "text": DataType.string(),
    "seconds": DataType.float64(),
    "size": DataType.int64(),
    "error": _ERROR,
    "media": _MEDIA,
}


def pipeline_frame(
    pipeline: str | Path | Mapping[str, Any],
    frame: daft.DataFrame,
    *,
    experts: Sequence[str] = DEFAULT_EXPERTS,
    output: str = "",
    workers: int = 0,
) -> daft.DataFrame:
    """Adds the results of a pipeline to a DataFrame, lazily.

    Args:
        pipeline: pipeline file, or its content.
        frame: has a column for each input of the pipeline: paths or object URLs, or bytes, of files; texts.
        experts: names of experts, or folders of other ones.
        output: folder or object URL for files that the pipeline makes; empty: they become columns of structs with the
            fields content, media_type and name.
        workers: worker processes of each task; 0: one for each GPU, or for each core.

    Returns:
        The frame with the columns of experts/bulk/README.md in addition to its own.

    Raises:
        ServiceError: the pipeline cannot run on these experts, or the frame lacks a column.
    """
    read = read_experts(experts)
    resolved = resolve(read_content(pipeline), read)
    missing = [name for name, required in resolved.inputs.items() if required and name not in frame.column_names]
    if missing:
        raise InvalidRequest(
            f"the frame has no column {missing[0]}", remedy=f"the pipeline's inputs are {', '.join(resolved.inputs)}"
        )
    if taken := sorted(columns_of(resolved, has_files=bool(output)).keys() & set(frame.column_names)):
        raise InvalidRequest(
            f"the frame has a column {taken[0]}, which the results need", remedy="rename the frame's column"
        )
    return add_tasks(
        frame,
        resolved,
        {name: place(expert, workers=workers) for name, expert in read.items()},
        inputs={name: name for name in resolved.inputs if name in frame.column_names},
        kept=frame.column_names,
        output=output,
    )


def read_content(pipeline: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the content of a pipeline file, given as such or by the path of the file.

    Raises:
        InvalidRequest: the file cannot be read.
    """
    if isinstance(pipeline, Mapping):
        return pipeline
    try:
        return dict(yaml.safe_load(Path(pipeline).read_text("utf-8")))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise InvalidRequest(f"cannot read the pipeline {pipeline}: {error}", remedy="give a pipeline file") from error


def add_tasks(
    frame: daft.DataFrame,
    pipeline: ResolvedPipeline,
    placements: Mapping[str, Placement],
    *,
    inputs: Mapping[str, str],
    kept: Sequence[str],
    output: str = "",
) -> daft.DataFrame:
    """Adds the columns of a resolved pipeline to a DataFrame.

    Args:
        frame: has a column for each input of the pipeline.
        pipeline: the pipeline.
        placements: of the workers, by expert.
        inputs: column of each input of the pipeline, by name.
        kept: columns of the frame that the result has, too.
        output: folder or object URL for files that the pipeline makes; empty: they stay in the frame.
    """
    settings = from_environment(Settings)
    for number, stage in enumerate(split_stages(pipeline, placements)):
        placement = stage.placement
        options = WorkerOptions(settings, pipeline.is_local, output, processes=placement.workers, cores=usable_cores())
        names = [name for name in stage.inputs if name in inputs]
        columns = [frame[inputs[name]] for name in names]
        earlier = [frame[_task_column(each)] for each in stage.dependencies]
        worker = _worker_class(stage)(stage, options, names)
        frame = frame.with_column(f"__stage{number}", worker.run(*columns, *earlier))
        frame = frame.with_columns(
            {_task_column(each.id): frame[f"__stage{number}"][str(each.id)] for each in stage.tasks}
        )
    results = [frame[_task_column(task.id)] for task in pipeline.tasks]
    return frame.select(*kept, _assemble(pipeline, has_files=bool(output))(*results))


def _task_column(task_id: int) -> str:
    return f"__task{task_id}"


def _worker_class(stage: Stage) -> Any:
    """Returns the Daft class of a stage."""

    def run(worker: StageWorker, *columns: daft.Series) -> list[dict[str, Any]]:
        return worker.run_columns([column.to_pylist() for column in columns])

    types = DataType.struct({str(task.id): result_type(task, stage.exported[task.id]) for task in stage.tasks})
    method = daft.method.batch(return_dtype=types, batch_size=stage.placement.rows)(run)
    name = ", ".join(f"{task.id} {task.task}" for task in stage.tasks)
    return daft.cls(
        type("Stage", (StageWorker,), {"run": method}),
        gpus=stage.placement.gpus,
        use_process=True,
        max_concurrency=stage.placement.workers,
        name_override=name,
    )


def result_type(task: ResolvedTask, exported: frozenset[str]) -> DataType:
    """Type of the results of a task, with the outputs that the pipeline or later stages take."""
    fields = {
        "digests": DataType.list(_DIGEST),
        "model": DataType.string(),
        "seconds": DataType.float64(),
        "error": _ERROR,
    }
    outputs = sorted(task.stored_outputs | exported)
    found: DataType = DataType.struct({"outputs": DataType.struct(dict.fromkeys(outputs, _CELL)), **fields})
    return found


def _assemble(pipeline: ResolvedPipeline, *, has_files: bool) -> Any:
    """Returns the function that makes the columns of the table from the results of all tasks."""
    types = {name: _TYPES[kind] for name, kind in columns_of(pipeline, has_files=has_files).items()}

    @daft.func.batch(return_dtype=DataType.struct(types), unnest=True)
    def assemble(*results: daft.Series) -> list[dict[str, Any]]:
        rows = zip(*(column.to_pylist() for column in results), strict=True)
        return [to_row(pipeline, row, has_files=has_files) for row in rows]

    return assemble
