"""Appends tasks to existing ones: removes duplicates, renumbers the others and links them."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from services.planner.plan import Argument, Many, Reference, Single, Task, Text
from services.planner.plan_check import references

Equality = Callable[[Task, Task], bool]


def is_equal(existing: Task, task: Task) -> bool:
    """Whether two tasks are equal, apart from their ids."""
    is_same_call = (existing.task, existing.arguments) == (task.task, task.arguments)
    return is_same_call and _parameters(existing) == _parameters(task)


def is_similar(existing: Task, task: Task) -> bool:
    """Whether two tasks run the same task on the same inputs; texts may differ."""
    return (existing.task, _non_text_arguments(existing)) == (task.task, _non_text_arguments(task))


class TaskDeduplicator:
    """Receives tasks and returns those that do not exist yet, renumbered.

    Args:
        existing: tasks of the run.
        failed: ids of existing tasks that must not be repeated.
        is_same: whether a new task duplicates an existing one.
    """

    def __init__(
        self, existing: Sequence[Task] = (), failed: Collection[int] = (), *, is_same: Equality = is_equal
    ) -> None:
        self._existing = [task for task in existing if task.id not in failed]
        self._failed = [task for task in existing if task.id in failed]
        self._is_same = is_same
        self._last_id = max((task.id for task in existing), default=0)
        self._ids: dict[int, int] = {}
        self._dropped = set[int]()

    def add(self, task: Task) -> Task | None:
        """Returns the renumbered task; None if it exists, failed before, or depends on a failed task."""
        arguments = {name: _renumbered(argument, self._ids) for name, argument in task.arguments.items()}
        renumbered = replace(task, arguments=arguments)
        if self._dropped & {reference.task_id for reference in references(task)} or any(
            is_equal(failed, renumbered) for failed in self._failed
        ):
            self._dropped.add(task.id)
            return None
        if same_task := next((existing for existing in self._existing if self._is_same(existing, renumbered)), None):
            self._existing.remove(same_task)
            self._ids[task.id] = same_task.id
            return None
        self._last_id = self._ids[task.id] = max(task.id, self._last_id + 1)
        return replace(renumbered, id=self._last_id)


def new_tasks(tasks: Sequence[Task], prior: Sequence[Task], *, is_same: Equality = is_equal) -> list[Task]:
    """Returns the tasks that do not exist yet, numbered after the existing ones and linked to them."""
    deduplicator = TaskDeduplicator(prior, is_same=is_same)
    return [added for task in tasks if (added := deduplicator.add(task))]


def _parameters(task: Task) -> object:
    return json.loads(task.parameters_json or "{}")


def _non_text_arguments(task: Task) -> Mapping[str, Argument]:
    return {port: argument for port, argument in task.arguments.items() if not isinstance(argument, Text)}


def _renumbered(argument: Argument, ids: Mapping[int, int]) -> Argument:
    if isinstance(argument, Many):
        return Many(tuple(_renumbered_single(item, ids) for item in argument.items))
    return _renumbered_single(argument, ids)


def _renumbered_single(argument: Single, ids: Mapping[int, int]) -> Single:
    if isinstance(argument, Reference):
        return Reference(ids.get(argument.task_id, argument.task_id), argument.output)
    return argument
