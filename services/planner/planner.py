"""The room's thinking: chooses who plans, and lets out only tasks that are valid."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from services.planner.catalog import Catalog
from services.planner.check import complaints, references
from services.planner.embedded.planning import Embedded
from services.planner.plan import (
    HARD_LIMIT,
    Argument,
    Catalogue,
    Decision,
    Draft,
    Many,
    Note,
    NoteKind,
    Reference,
    Single,
    Task,
    Value,
)
from services.planner.request import Check, Replan, Request
from services.runtime.errors import InvalidRequest

Step = Task | Note | Decision
"""What a plan is told in; a Decision comes last."""

Emit = Callable[[Step], Awaitable[None]]


class Planner:
    """Plans requests. Whoever makes a plan, what leaves here is valid against the catalogue."""

    def __init__(self, catalog: Catalog, embedded: Embedded) -> None:
        self._catalog = catalog
        self._embedded = embedded

    async def plan(self, request: Request, emit: Emit) -> None:
        """Emits a plan step by step.

        Raises:
            InvalidRequest: EMPTY, there is nothing to plan; PLAN, the supplied plan has faults, all of them named.
            Unavailable: it is not known yet what can be planned.
        """
        if not isinstance(request.goal, Check) and not request.text.strip():
            raise InvalidRequest(
                "the request is empty", reason="EMPTY", remedy="say in a sentence what is to be done, or supply a plan"
            )
        for step in await self._steps(request):
            await emit(step)

    async def _steps(self, request: Request) -> Sequence[Step]:
        catalogue = await self._catalog.tasks()
        inputs = {named.name: named.value for named in request.inputs}
        if isinstance(request.goal, Check):
            return checked(request.goal.draft, catalogue, inputs)
        if isinstance(request.goal, Replan):
            return _no_other_way(request.goal)
        draft = await asyncio.to_thread(self._embedded.plan, request, catalogue)
        draft = sound(draft, catalogue, inputs, limit=request.limit or HARD_LIMIT)
        return [*beyond(draft.tasks, request.standing), *draft.notes, draft.decision]


def checked(draft: Sequence[Task], catalogue: Catalogue, inputs: Mapping[str, Value]) -> list[Step]:
    """A supplied plan as it is.

    Raises:
        InvalidRequest: PLAN, with every complaint.
    """
    if found := complaints(draft, catalogue, inputs):
        message = "the plan cannot be run as it stands: " + "; ".join(map(str, found))
        raise InvalidRequest(message, reason="PLAN", remedy="correct what is named and send it again")
    return [*draft, Decision("supplied", "The plan was supplied, and it is valid.", 1.0)]


def sound(draft: Draft, catalogue: Catalogue, inputs: Mapping[str, Value], *, limit: int = HARD_LIMIT) -> Draft:
    """The valid part of a draft, within the limit, with a note on what was left out."""
    tasks, notes = draft.tasks[:limit], list(draft.notes)
    if len(draft.tasks) > len(tasks):
        text = f"The request calls for {len(draft.tasks)} tasks; only the first {limit} are planned: split the request."
        notes.append(Note(NoteKind.UNMAPPED, text))
    faults = {fault.task_id: fault for fault in complaints(tasks, catalogue, inputs)} if tasks else {}
    kept: dict[int, Task] = {}
    for task in tasks:
        if task.id in faults:
            notes.append(
                Note(NoteKind.UNMAPPED, f"“{task.source}” could not be planned: {faults[task.id]}.", task.source)
            )
        elif all(reference.task_id in kept for reference in references(task)):
            kept[task.id] = task
    return Draft(tuple(kept.values()), tuple(notes), draft.decision)


def beyond(tasks: Sequence[Task], prior: Sequence[Task]) -> list[Task]:
    """The tasks that do not stand yet, numbered after and linked to those that do."""
    if not prior:
        return list(tasks)
    ids: dict[int, int] = {}
    standing = list(prior)
    following = max(task.id for task in prior) + 1
    new = []
    for task in tasks:
        arguments = {name: _renumbered(argument, ids) for name, argument in task.arguments.items()}
        same = next((other for other in standing if _same(other, task, arguments)), None)
        if same:
            standing.remove(same)
            ids[task.id] = same.id
            continue
        ids[task.id] = following
        new.append(replace(task, id=following, arguments=arguments))
        following += 1
    return new


def _same(standing: Task, task: Task, arguments: Mapping[str, Argument]) -> bool:
    return (standing.task, standing.arguments, standing.parameters_json) == (task.task, arguments, task.parameters_json)


def _renumbered(argument: Argument, ids: Mapping[int, int]) -> Argument:
    if isinstance(argument, Many):
        return Many(tuple(_renumbered_single(item, ids) for item in argument.items))
    return _renumbered_single(argument, ids)


def _renumbered_single(argument: Single, ids: Mapping[int, int]) -> Single:
    if isinstance(argument, Reference):
        return Reference(ids.get(argument.task_id, argument.task_id), argument.output)
    return argument


def _no_other_way(goal: Replan) -> list[Step]:
    failed = ", ".join(map(str, goal.failed)) or "that failed"
    note = Note(
        NoteKind.UNMAPPED,
        f"No other way is known to what task {failed} should have given: see the error, or ask differently.",
    )
    return [note, Decision("embedded", "Rules know one way to each task.")]
