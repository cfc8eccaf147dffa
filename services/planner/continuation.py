"""What comes after tasks that stand: told once, numbered after them and linked to them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from services.planner.plan import Argument, Many, Reference, Single, Task, Text
from services.planner.plan_check import references

Alike = Callable[[Task, Task], bool]


def same(standing: Task, task: Task) -> bool:
    """Whether one does what the other does."""
    return (standing.task, standing.arguments, standing.parameters_json) == (
        task.task,
        task.arguments,
        task.parameters_json,
    )


def alike(standing: Task, task: Task) -> bool:
    """Whether one is likely to be meant by the other: the same work on the same things, whatever its words."""
    return (standing.task, _things(standing)) == (task.task, _things(task))


class Following:
    """Takes the tasks of one author and gives those that do not stand yet.

    Args:
        standing: tasks that stand.
        failed: ids of those among them that are not to be tried again.
        alike: tells whether a task is one that stands.
    """

    def __init__(self, standing: Sequence[Task] = (), failed: Collection[int] = (), *, alike: Alike = same) -> None:
        self._standing = [task for task in standing if task.id not in failed]
        self._failed = [task for task in standing if task.id in failed]
        self._alike = alike
        self._last = max((task.id for task in standing), default=0)
        self._ids: dict[int, int] = {}
        self._lost = set[int]()

    def new(self, task: Task) -> Task | None:
        """The task as it follows; None if it stands, failed before, or needs what failed."""
        arguments = {name: _renumbered(argument, self._ids) for name, argument in task.arguments.items()}
        meant = replace(task, arguments=arguments)
        if self._lost & {reference.task_id for reference in references(task)} or any(
            same(failed, meant) for failed in self._failed
        ):
            self._lost.add(task.id)
            return None
        if known := next((other for other in self._standing if self._alike(other, meant)), None):
            self._standing.remove(known)
            self._ids[task.id] = known.id
            return None
        self._last = self._ids[task.id] = max(task.id, self._last + 1)
        return replace(meant, id=self._last)


def beyond(tasks: Sequence[Task], prior: Sequence[Task], *, alike: Alike = same) -> list[Task]:
    """The tasks that do not stand yet, numbered after and linked to those that do."""
    following = Following(prior, alike=alike)
    return [new for task in tasks if (new := following.new(task))]


def _things(task: Task) -> Mapping[str, Argument]:
    return {port: argument for port, argument in task.arguments.items() if not isinstance(argument, Text)}


def _renumbered(argument: Argument, ids: Mapping[int, int]) -> Argument:
    if isinstance(argument, Many):
        return Many(tuple(_renumbered_single(item, ids) for item in argument.items))
    return _renumbered_single(argument, ids)


def _renumbered_single(argument: Single, ids: Mapping[int, int]) -> Single:
    if isinstance(argument, Reference):
        return Reference(ids.get(argument.task_id, argument.task_id), argument.output)
    return argument
