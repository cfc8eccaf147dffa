"""The room's thinking: chooses who plans, and lets out only tasks that are valid."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from services.common.errors import InvalidRequest
from services.planner.catalog import Catalog
from services.planner.continuation import Following, alike, beyond
from services.planner.embedded.planning import Embedded
from services.planner.excerpt import excerpt
from services.planner.llm.planner import LLMPlanError, LLMPlanner
from services.planner.plan import HARD_LIMIT, Catalogue, Decision, Draft, Note, NoteKind, Task, Value
from services.planner.plan_check import complaints, references
from services.planner.process import OverLimit, PlanningProcess
from services.planner.request import Check, Replan, Request

log = structlog.get_logger(__name__)

Step = Task | Note | Decision
"""What a plan is told in; a Decision comes last."""

Emit = Callable[[Step], Awaitable[None]]

LONG = 4_000
"""Characters of a request that are analysed within this process, in a quarter of a second at most."""

MOST_ANALYSED = 20_000
"""Characters of a request that are analysed at all."""

FILE_CHARACTERS = 20
"""How many characters more a file is worth: what is analysed is compared with every file."""

_IN_TURN = ThreadPoolExecutor(1, thread_name_prefix="planning")
"""Plans are made without an LLM one after the other: side by side they only take the interpreter from each other."""

_TOO_LONG = Note(
    NoteKind.UNMAPPED,
    "The request is too long to plan without an LLM: finding out what it asks for takes more processor time than one"
    " request may have. Send long texts as files, write only what is to be done with them, and split long lists of"
    " instructions into several requests.",
)

SURE = 0.7
"""Least confidence with which the embedded planner adds to what an LLM began."""


class Planner:
    """Plans requests. Whoever makes a plan, what leaves here is valid against the catalogue.

    Args:
        catalog: knows what can be planned.
        embedded: plans without an LLM, and in place of one that fails.
        llm: plans, if there is one.
        process: plans without an LLM what is too long for this process; by default a fresh one.
    """

    def __init__(
        self,
        catalog: Catalog,
        embedded: Embedded,
        llm: LLMPlanner | None = None,
        process: PlanningProcess | None = None,
    ) -> None:
        self._catalog = catalog
        self._embedded = embedded
        self._llm = llm
        self._process = process or PlanningProcess()

    async def plan(self, request: Request, emit: Emit, *, seconds: float | None = None) -> None:
        """Emits a plan step by step.

        Args:
            request: what is asked.
            emit: told every step.
            seconds: an LLM may take, if that is limited.

        Raises:
            InvalidRequest: EMPTY, there is nothing to plan; PLAN, the supplied plan has faults, all of them named.
            Unavailable: it is not known yet what can be planned.
        """
        if not isinstance(request.goal, Check) and not request.text.strip():
            raise InvalidRequest(
                "the request is empty", reason="EMPTY", remedy="say in a sentence what is to be done, or supply a plan"
            )
        catalogue = await self._catalog.tasks()
        if isinstance(request.goal, Check):
            await _all(await asyncio.to_thread(checked, request.goal.draft, catalogue, _inputs(request)), emit)
        elif self._llm and catalogue:
            await self._by_llm(self._llm, request, catalogue, emit=emit, seconds=seconds)
        else:
            steps, decision = await self._without(request, catalogue)
            await _all([*steps, decision], emit)

    async def _by_llm(
        self, llm: LLMPlanner, request: Request, catalogue: Catalogue, *, emit: Emit, seconds: float | None
    ) -> None:
        told = _Told(request, emit)
        try:
            decision = await llm.plan(request, catalogue, told.tell, seconds=seconds)
        except LLMPlanError as error:
            because = str(error)
            log.warning("planned without the LLM", because=because, tasks=len(told.tasks))
            await emit(_fell_back(because, begun=bool(told.tasks)))
            steps, decision = await self._without(request, catalogue, told.tasks)
            await _all(steps, emit)
            decision = replace(decision, llm_model=llm.model, fell_back_because=because, usage=error.usage)
        else:
            if isinstance(request.goal, Replan) and not told.tasks:
                await emit(_no_other_way(request.goal))
        await emit(decision)

    async def _without(
        self, request: Request, catalogue: Catalogue, begun: Sequence[Task] = ()
    ) -> tuple[list[Task | Note], Decision]:
        """What is planned without an LLM, after the tasks that one has begun with."""
        if isinstance(request.goal, Replan):
            notes: list[Task | Note] = [] if begun else [_no_other_way(request.goal)]
            return notes, Decision("embedded", "Rules know one way to each task.")
        draft = await self._drafted(request, catalogue)
        limit = request.limit or HARD_LIMIT
        draft = await asyncio.to_thread(sound, draft, catalogue, _inputs(request), limit=limit)
        if not begun:
            return [*beyond(draft.tasks, request.standing), *draft.notes], draft.decision
        sure = draft.tasks if draft.decision.confidence >= SURE else ()
        further = beyond(sure, [*request.standing, *begun], alike=alike)
        return list(further[: max(limit - len(begun), 0)]), draft.decision

    async def _drafted(self, request: Request, catalogue: Catalogue) -> Draft:
        """A plan of what can say what is wanted: in this process if that is short, else within a limit in another."""
        loop = asyncio.get_running_loop()
        characters = LONG - _files(request) * FILE_CHARACTERS
        if characters > 0:
            draft = await loop.run_in_executor(_IN_TURN, self._planned_within, characters, request, catalogue)
            if draft:
                return draft
        most = await asyncio.to_thread(excerpt, request, MOST_ANALYSED)
        try:
            return most.restored(await self._process.plan(most.request, catalogue))
        except OverLimit:
            log.warning("planning stopped at its limit of processor time", characters=len(request.text))
            return Draft((), (_TOO_LONG,), Decision("embedded", "The request is too long to plan without an LLM."))

    def _planned_within(self, characters: int, request: Request, catalogue: Catalogue) -> Draft | None:
        """A plan of an excerpt of the request; None if more of it has to be analysed."""
        short = excerpt(request, characters)
        draft = self._embedded.plan(short.request, catalogue)
        return short.restored(draft) if short.explains(draft) else None


def _files(request: Request) -> int:
    return len(request.inputs) + sum(len(turn.attachments) for turn in request.conversation)


class _Told:
    """What has been told of a plan."""

    def __init__(self, request: Request, emit: Emit) -> None:
        failed = request.goal.failed if isinstance(request.goal, Replan) else ()
        self._following = Following(request.standing, failed)
        self._emit = emit
        self.tasks: list[Task] = []

    async def tell(self, step: Task | Note) -> None:
        """Emits a remark, or a task that does not stand yet."""
        if isinstance(step, Note):
            await self._emit(step)
        elif task := self._following.new(step):
            self.tasks.append(task)
            await self._emit(task)


async def _all(steps: Iterable[Step], emit: Emit) -> None:
    for step in steps:
        await emit(step)


def _inputs(request: Request) -> Mapping[str, Value]:
    return {named.name: named.value for named in request.inputs}


def _fell_back(because: str, *, begun: bool) -> Note:
    planned = "What the LLM had planned stands; the rest was" if begun else "This was"
    return Note(NoteKind.FELL_BACK, f"{planned} planned without it: {because}.")


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


def _no_other_way(goal: Replan) -> Note:
    failed = ", ".join(map(str, goal.failed)) or "that failed"
    return Note(
        NoteKind.UNMAPPED,
        f"No other way is known to what task {failed} should have given: see the error, or ask differently.",
    )
