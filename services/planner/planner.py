"""Plans requests: chooses the LLM or the embedded planner, and emits only valid tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from services.common.errors import InvalidRequest
from services.planner.catalog import TaskCatalog
from services.planner.embedded.planning import Embedded
from services.planner.excerpt import excerpt
from services.planner.llm.planner import LLMPlanError, LLMPlanner
from services.planner.plan import HARD_LIMIT, Decision, Draft, Note, NoteKind, Task, Value
from services.planner.plan_assembler import is_similar, new_tasks
from services.planner.plan_check import find_faults, references
from services.planner.process import PlanningLimitExceeded, PlanningProcess
from services.planner.request import Check, Replan, Request
from services.planner.task_spec import Catalogue

log = structlog.get_logger(__name__)

Step = Task | Note | Decision
"""Event of a plan; a Decision comes last."""

Emit = Callable[[Step], Awaitable[None]]

LONG = 4_000
"""Characters of a request that are analysed in this process, which takes a quarter of a second at most."""

MAX_ANALYSED = 20_000
"""Limit of characters of a request that are analysed."""

FILE_CHARACTERS = 20
"""Characters by which each file lowers the limit: the analysis compares the text with every file."""

_PLANNING_THREAD = ThreadPoolExecutor(1, thread_name_prefix="planning")
"""Embedded plans run one after the other; in parallel they would only compete for the interpreter."""

_TOO_LONG = Note(
    NoteKind.UNMAPPED,
    "The request is too long to plan without an LLM: finding out what it asks for takes more processor time than one"
    " request may have. Send long texts as files, write only what is to be done with them, and split long lists of"
    " instructions into several requests.",
)

SURE = 0.7
"""Minimum confidence for adding tasks of the embedded planner to those of an LLM."""


class Planner:
    """Plans requests; every emitted task is valid against the catalogue.

    Args:
        catalog: provides the available tasks.
        embedded: plans without an LLM, and when the LLM fails.
        llm: plans if given.
        process: plans long requests without an LLM; None: a new one.
    """

    def __init__(
        self,
        catalog: TaskCatalog,
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
            request: to plan.
            emit: receives every step.
            seconds: time limit of the LLM; None: no limit.

        Raises:
            InvalidRequest: EMPTY: there is nothing to plan; PLAN: the supplied plan is invalid.
            Unavailable: the catalogue is not loaded yet.
        """
        if not isinstance(request.goal, Check) and not request.text.strip():
            raise InvalidRequest(
                "the request is empty", reason="EMPTY", remedy="describe in a sentence what to do, or supply a plan"
            )
        catalogue = await self._catalog.tasks()
        if isinstance(request.goal, Check):
            await _emit_all(await asyncio.to_thread(check_plan, request.goal.draft, catalogue, _inputs(request)), emit)
        elif self._llm and catalogue:
            await self._by_llm(self._llm, request, catalogue, emit=emit, seconds=seconds)
        else:
            steps, decision = await self._plan_without_llm(request, catalogue)
            await _emit_all([*steps, decision], emit)

    async def _by_llm(
        self, llm: LLMPlanner, request: Request, catalogue: Catalogue, *, emit: Emit, seconds: float | None
    ) -> None:
        tasks: list[Task] = []

        async def emit_step(step: Task | Note) -> None:
            if isinstance(step, Task):
                tasks.append(step)
            await emit(step)

        try:
            decision = await llm.plan(request, catalogue, emit_step, seconds=seconds)
        except LLMPlanError as error:
            reason = str(error)
            log.warning("planned without the LLM", reason=reason, tasks=len(tasks))
            await emit(_fell_back(reason, started=bool(tasks)))
            steps, decision = await self._plan_without_llm(request, catalogue, tasks)
            await _emit_all(steps, emit)
            decision = replace(decision, llm_model=llm.model, fell_back_because=reason, usage=error.usage)
        else:
            if isinstance(request.goal, Replan) and not tasks:
                await emit(_no_alternative(request.goal))
        await emit(decision)

    async def _plan_without_llm(
        self, request: Request, catalogue: Catalogue, started: Sequence[Task] = ()
    ) -> tuple[list[Task | Note], Decision]:
        """Plans without an LLM; continues the tasks that an LLM has emitted before it failed."""
        if isinstance(request.goal, Replan):
            notes: list[Task | Note] = [] if started else [_no_alternative(request.goal)]
            return notes, Decision("embedded", "Rules know one way to each task.")
        draft = await self._draft(request, catalogue)
        limit = request.limit or HARD_LIMIT
        draft = await asyncio.to_thread(valid_part, draft, catalogue, _inputs(request), limit=limit)
        if not started:
            return [*new_tasks(draft.tasks, request.standing), *draft.notes], draft.decision
        sure = draft.tasks if draft.decision.confidence >= SURE else ()
        more = new_tasks(sure, [*request.standing, *started], is_same=is_similar)
        return list(more[: max(limit - len(started), 0)]), draft.decision

    async def _draft(self, request: Request, catalogue: Catalogue) -> Draft:
        """Drafts a plan: in this process if an excerpt is enough, else in the planning process, within its limit."""
        loop = asyncio.get_running_loop()
        characters = LONG - _files(request) * FILE_CHARACTERS
        if characters > 0:
            draft = await loop.run_in_executor(_PLANNING_THREAD, self._plan_excerpt, characters, request, catalogue)
            if draft:
                return draft
        long_excerpt = await asyncio.to_thread(excerpt, request, MAX_ANALYSED)
        try:
            return long_excerpt.restore(await self._process.plan(long_excerpt.request, catalogue))
        except PlanningLimitExceeded:
            log.warning("planning stopped at its limit of processor time", characters=len(request.text))
            return Draft((), (_TOO_LONG,), Decision("embedded", "The request is too long to plan without an LLM."))

    def _plan_excerpt(self, characters: int, request: Request, catalogue: Catalogue) -> Draft | None:
        """Plans an excerpt of the request; None if more of the request must be analysed."""
        short = excerpt(request, characters)
        draft = self._embedded.plan(short.request, catalogue)
        return short.restore(draft) if short.covers(draft) else None


def _files(request: Request) -> int:
    return len(request.inputs) + sum(len(turn.attachments) for turn in request.conversation)


async def _emit_all(steps: Iterable[Step], emit: Emit) -> None:
    for step in steps:
        await emit(step)


def _inputs(request: Request) -> Mapping[str, Value]:
    return {named.name: named.value for named in request.inputs}


def _fell_back(reason: str, *, started: bool) -> Note:
    planned = "The tasks that the LLM had planned remain; the rest was" if started else "This was"
    return Note(NoteKind.FELL_BACK, f"{planned} planned without it: {reason}.")


def check_plan(draft: Sequence[Task], catalogue: Catalogue, inputs: Mapping[str, Value]) -> list[Step]:
    """Validates a supplied plan and returns its steps.

    Raises:
        InvalidRequest: PLAN: the message lists all faults.
    """
    if found := find_faults(draft, catalogue, inputs):
        message = "the plan is invalid: " + "; ".join(map(str, found))
        raise InvalidRequest(message, reason="PLAN", remedy="correct these faults and send the plan again")
    return [*draft, Decision("supplied", "The plan was supplied, and it is valid.", 1.0)]


def valid_part(draft: Draft, catalogue: Catalogue, inputs: Mapping[str, Value], *, limit: int = HARD_LIMIT) -> Draft:
    """Returns the valid part of a draft, within the limit, with notes about what was omitted."""
    tasks, notes = draft.tasks[:limit], list(draft.notes)
    if len(draft.tasks) > len(tasks):
        text = f"The request calls for {len(draft.tasks)} tasks; only the first {limit} are planned: split the request."
        notes.append(Note(NoteKind.UNMAPPED, text))
    faults = {fault.task_id: fault for fault in find_faults(tasks, catalogue, inputs)} if tasks else {}
    valid: dict[int, Task] = {}
    for task in tasks:
        if task.id in faults:
            notes.append(
                Note(NoteKind.UNMAPPED, f"“{task.source}” could not be planned: {faults[task.id]}.", task.source)
            )
        elif all(reference.task_id in valid for reference in references(task)):
            valid[task.id] = task
    return Draft(tuple(valid.values()), tuple(notes), draft.decision)


def _no_alternative(goal: Replan) -> Note:
    failed = ", ".join(map(str, goal.failed)) or "that failed"
    return Note(
        NoteKind.UNMAPPED,
        f"No alternative to task {failed} is known: see its error, or change the request.",
    )
