"""A pipeline as an actor class for Ray Data, whose instances hold the models of all tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experts.bulk.frame import read_content
from experts.bulk.pipeline import DEFAULT_EXPERTS, read_experts, resolve
from experts.bulk.rows import to_row
from experts.bulk.stage import Placement, Stage, StageWorker
from experts.bulk.worker import WorkerOptions
from experts.host.devices import usable_cores
from experts.host.settings import Settings
from services.common.settings import from_environment


class PipelineActor:
    """Runs all tasks of a pipeline on batches of Ray Data: dataset.map_batches(PipelineActor, fn_constructor_kwargs=…).

    Args:
        pipeline: pipeline file, or its content.
        experts: names of experts, or folders of other ones.
        output: folder or object URL for files that the pipeline makes; empty: they become dicts with the keys content,
            media_type and name.
        actors: actors on one machine, which share its cores.

    Raises:
        ServiceError: the pipeline cannot run on these experts.
        WorkerFailed: a model cannot be loaded.
    """

    def __init__(
        self,
        pipeline: str | Path | Mapping[str, Any],
        *,
        experts: Sequence[str] = DEFAULT_EXPERTS,
        output: str = "",
        actors: int = 1,
    ) -> None:
        self._pipeline, self._has_files = resolve(read_content(pipeline), read_experts(experts)), bool(output)
        options = WorkerOptions(
            from_environment(Settings), self._pipeline.is_local, output, processes=actors, cores=usable_cores()
        )
        stage = Stage(self._pipeline.tasks, Placement(actors), dict.fromkeys(self._ids, frozenset()))
        self._stage = StageWorker(stage, options, tuple(self._pipeline.inputs))

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Adds the columns of the results to a batch in Ray's default format: arrays by column."""
        count = len(next(iter(batch.values())))
        columns = [list(batch[name]) if name in batch else [None] * count for name in self._pipeline.inputs]
        found = self._stage.run_columns(columns)
        results = ([row[str(each)] for each in self._ids] for row in found)
        rows = [to_row(self._pipeline, row, has_files=self._has_files) for row in results]
        added = {name: np.array([row[name] for row in rows], dtype=object) for name in rows[0]} if rows else {}
        return {**batch, **added}

    @property
    def _ids(self) -> list[int]:
        return [task.id for task in self._pipeline.tasks]
