"""Assembles the plan of a run from the tasks of a controller: numbers, de-duplicates and links them."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

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


class Group(NamedTuple):
    """Tasks of the plan that one task of a controller became: one, or several if it was split."""

    tasks: tuple[Task, ...]
    new: tuple[Task, ...]
    """Those to emit; the others exist already, or are left out because they would repeat a failure."""


class PlanAssembler:
    """The growing plan of a run. A controller refers to tasks by its own ids.

    A task that is equal to an existing one becomes that one; each existing task is used once. A task that is equal to a
    failed one is left out, and so is every task that depends on it.

    Args:
        existing: tasks of the run.
        failed: ids of existing tasks that must not be repeated; no task can refer to them or to their dependents.
        is_same: whether a task is the same as an existing one.
    """

    def __init__(
        self, existing: Sequence[Task] = (), failed: Collection[int] = (), *, is_same: Equality = is_equal
    ) -> None:
        self._failed = [task for task in existing if task.id in failed]
        self._unmatched = list(_without_failed(existing, failed))
        self._is_same = is_same
        self._by_id = {task.id: task for task in existing}
        self._last_id = max(self._by_id, default=0)
        self._left_out = set[int]()
        self.tasks: list[Task] = []
        """New tasks, without those left out."""
        self.groups: dict[int, Sequence[Task]] = {task.id: (task,) for task in self._unmatched}
        """Tasks by the controller's ids, and existing tasks whose ids it has not used for its own."""
        self.sources: list[Sequence[Task]] = list(self.groups.values())
        """All groups whose outputs further tasks may use."""

    def reserve(self, own_id: int) -> None:
        """Reserves an id for a task of the controller, which an existing task may have too."""
        self.groups.pop(own_id, None)

    def linked(self, task: Task) -> Task:
        """Returns a task with references to tasks of the plan instead of the controller's; those must not be split."""
        return replace(task, arguments={port: self._linked(argument) for port, argument in task.arguments.items()})

    def number(self, tasks: Sequence[Task]) -> Group:
        """Numbers the linked tasks that one task of the controller became, without adding them.

        An id of a task is kept if it is larger than those before it.
        """
        group: list[Task] = []
        new: list[Task] = []
        unmatched, last_id = list(self._unmatched), self._last_id
        for task in tasks:
            is_left_out = self._repeats_failure(task)
            same = None if is_left_out else next((other for other in unmatched if self._is_same(other, task)), None)
            if same:
                unmatched.remove(same)
                group.append(same)
                continue
            last_id = max(task.id, last_id + 1)
            group.append(replace(task, id=last_id))
            new += [] if is_left_out else group[-1:]
        return Group(tuple(group), tuple(new))

    def add(self, own_id: int, group: Group) -> None:
        """Adds a numbered group as the controller's task with this id."""
        ids = {task.id for task in group.tasks}
        self._unmatched = [task for task in self._unmatched if task.id not in ids]
        self._left_out |= ids - self._by_id.keys() - {task.id for task in group.new}
        self._by_id.update({task.id: task for task in group.tasks})
        self._last_id = max(self._last_id, *ids)
        self.tasks += group.new
        self.groups[own_id] = group.tasks
        if group.new:
            self.sources.append(group.tasks)

    def needed(self, task: Task) -> list[Task]:
        """Returns the tasks that a linked task refers to."""
        return [self._by_id[task_id] for task_id in sorted({reference.task_id for reference in references(task)})]

    def _repeats_failure(self, task: Task) -> bool:
        return any(reference.task_id in self._left_out for reference in references(task)) or any(
            is_equal(failed, task) for failed in self._failed
        )

    def _linked(self, argument: Argument) -> Argument:
        if isinstance(argument, Many):
            return Many(tuple(self._linked_single(item) for item in argument.items))
        return self._linked_single(argument)

    def _linked_single(self, argument: Single) -> Single:
        if isinstance(argument, Reference):
            return Reference(self.groups[argument.task_id][0].id, argument.output)
        return argument


def new_tasks(tasks: Sequence[Task], existing: Sequence[Task], *, is_same: Equality = is_equal) -> list[Task]:
    """Returns the tasks of a plan that do not exist yet, numbered after the existing ones and linked to them."""
    assembler = PlanAssembler(existing, is_same=is_same)
    for task in tasks:
        assembler.add(task.id, assembler.number([assembler.linked(task)]))
    return assembler.tasks


def _parameters(task: Task) -> object:
    return json.loads(task.parameters_json or "{}")


def _non_text_arguments(task: Task) -> Mapping[str, Argument]:
    return {port: argument for port, argument in task.arguments.items() if not isinstance(argument, Text)}


def _without_failed(tasks: Sequence[Task], failed: Collection[int]) -> Iterator[Task]:
    """Yields the tasks that do not depend on a failed one."""
    lost = set(failed)
    for task in tasks:
        if task.id in lost or any(reference.task_id in lost for reference in references(task)):
            lost.add(task.id)
        else:
            yield task
