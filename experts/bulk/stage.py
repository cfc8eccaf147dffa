"""Stages of a pipeline: tasks whose workers are placed alike share worker processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from typing import Any

from experts.bulk.pipeline import ResolvedPipeline, ResolvedTask
from experts.bulk.worker import Result, Row, TaskWorker, WorkerOptions
from experts.host.devices import CPU, usable_cores
from experts.host.expert import Expert

GPU_ROWS, ENGINE_ROWS, CORE_ROWS = 256, 32, 16
"""Most rows of one call of a worker that has a GPU, all cores, or one core. The host forms the batches of the model
from them; results are written as calls end."""

CALLS_PER_WORKER = 4
"""Least calls of each worker in a small job."""


@dataclass(frozen=True)
class Placement:
    """Where the workers of a task run."""

    workers: int
    gpus: int = 0
    """GPUs of each worker."""
    rows: int = CORE_ROWS
    """Rows of one call of a worker."""

    def spread(self, count: int) -> "Placement":
        """Returns the placement with calls small enough that all workers take part in so many rows."""
        return replace(self, rows=max(1, min(self.rows, ceil(count / (CALLS_PER_WORKER * self.workers)))))


@dataclass(frozen=True)
class Cluster:
    """What the workers of a job run on."""

    cores: int
    gpus: int
    machines: int = 1


def place(expert: Expert, cluster: Cluster | None = None, *, workers: int = 0) -> Placement:
    """Returns how many workers run the tasks of an expert.

    A worker has a GPU of its own if there are any. Engines that use all cores by themselves have one worker on each
    machine, other ones one for each core.

    Args:
        expert: that has the task.
        cluster: where they run; None: on this machine.
        workers: so many; 0: as many as fit.
    """
    if expert.devices is None:
        return Placement(workers or (cluster.cores if cluster else usable_cores()))
    gpus = cluster.gpus if cluster else len([device for device in expert.devices.devices() if device != CPU])
    if gpus:
        return Placement(workers or gpus, 1, GPU_ROWS)
    return Placement(workers or (cluster.machines if cluster else 1), rows=ENGINE_ROWS)


@dataclass(frozen=True)
class Stage:
    """Tasks that run one after the other in the same worker processes."""

    tasks: tuple[ResolvedTask, ...]
    placement: Placement
    exported: Mapping[int, frozenset[str]]
    """Outputs that later stages take, by task."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the pipeline's inputs that its tasks take."""
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.inputs))

    @property
    def dependencies(self) -> tuple[int, ...]:
        """Ids of the tasks of earlier stages whose outputs its tasks take."""
        own = {task.id for task in self.tasks}
        return tuple(dict.fromkeys(each for task in self.tasks for each in task.dependencies if each not in own))


def split_stages(pipeline: ResolvedPipeline, placements: Mapping[str, Placement]) -> list[Stage]:
    """Divides the tasks of a pipeline into stages: consecutive tasks whose workers are placed alike share them.

    A stage loads the models of all its tasks in each worker, and passes outputs on without copies; different stages
    run at the same time on different rows.
    """
    groups = groupby(pipeline.tasks, key=lambda task: placements[task.expert])
    found = [(placement, tuple(tasks)) for placement, tasks in groups]
    stages = []
    for index, (placement, tasks) in enumerate(found):
        later = [task for _, each in found[index + 1 :] for task in each]
        taken = {(each.task_id, each.output) for task in later for each in task.references}
        exported = {task.id: frozenset(port for task_id, port in taken if task_id == task.id) for task in tasks}
        stages.append(Stage(tasks, placement, exported))
    return stages


class StageWorker:
    """The tasks of a stage in a worker process.

    Args:
        stage: the stage.
        options: of its tasks.
        inputs: names of the inputs of the rows.
    """

    def __init__(self, stage: Stage, options: WorkerOptions, inputs: Sequence[str]) -> None:
        self._stage, self._inputs = stage, inputs
        self._workers = {task.id: TaskWorker(task, options) for task in stage.tasks}

    def run_columns(self, values: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """Runs the stage on columns: of inputs, then of the results of tasks of earlier stages.

        Returns:
            The results of its tasks for each row, by id as text.
        """
        count = len(self._inputs)
        rows = [dict(zip(self._inputs, row, strict=True)) for row in zip(*values[:count], strict=True)]
        results = dict(zip(self._stage.dependencies, values[count:], strict=True))
        results = self.run_rows(rows or [{}] * len(values[0]), results)
        found = {
            str(task.id): [_without(result, self._stage.exported[task.id]) for result in results[task.id]]
            for task in self._stage.tasks
        }
        return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]

    def run_rows(self, rows: Sequence[Row], results: Mapping[int, Sequence[Result]]) -> dict[int, Sequence[Result]]:
        """Returns the results of its tasks, in addition to those of earlier ones, by task."""
        found = dict(results)
        for task in self._stage.tasks:
            earlier = {task_id: found[task_id] for task_id in task.dependencies}
            found[task.id] = self._workers[task.id].run(rows, earlier)
        return found


def _without(result: Result, exported: frozenset[str]) -> Result:
    """Returns a result without contents that no later stage takes and that are in a file."""
    outputs = {
        name: {**cell, "content": None} if cell.get("url") and name not in exported else cell
        for name, cell in result["outputs"].items()
    }
    return {**result, "outputs": outputs}
