"""Planner that streams a plan from an LLM, with one repair call for faults that rules cannot repair."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable

import structlog

from services.llm.client import LLM, LLMError, Usage
from services.planner.llm.inputs import Material
from services.planner.llm.json_stream import PlanReader
from services.planner.llm.plan_format import plan_schema
from services.planner.llm.prompt import PlanPrompt, PlanPromptBuilder
from services.planner.llm.repair import PlanRepairer
from services.planner.plan import HARD_LIMIT, Decision, Note, NoteKind, Task
from services.planner.plan_assembler import PlanAssembler
from services.planner.request import New, Replan, Request
from services.planner.task_spec import Catalogue

log = structlog.get_logger(__name__)

CONTROLLER = "llm"

Emit = Callable[[Task | Note], Awaitable[None]]

MAX_UNMAPPED_NOTES = 8
"""Limit of notes on single tasks that could not be planned."""

TRUNCATED = "the answer is truncated: add tasks for every part of the request that it omits"

_NOTHING = re.compile(r"[\s`{]*(?:json\b)?[\s`{]*(?:[\"']?tasks[\"']?\s*:)?\s*\[\s*\][\s`}.]*", re.IGNORECASE)
"""Matches an answer that is an empty plan."""


class LLMPlanError(Exception):
    """The LLM gave no plan or only part of one; the message contains no content."""

    def __init__(self, message: str, usage: Usage) -> None:
        super().__init__(message)
        self.usage = usage


class LLMPlanner:
    """Plans requests with an LLM."""

    def __init__(self, llm: LLM, prompting: PlanPromptBuilder) -> None:
        self._llm = llm
        self._prompting = prompting

    @property
    def model(self) -> str:
        """Name of the LLM."""
        return self._llm.model

    async def plan(
        self, request: Request, catalogue: Catalogue, emit: Emit, *, seconds: float | None = None
    ) -> Decision:
        """Emits tasks and notes while they are written; each task is valid together with those before it.

        Args:
            request: must require planning, not only validation.
            catalogue: available tasks.
            emit: receives tasks and notes.
            seconds: time limit; None: no limit.

        Raises:
            LLMPlanError: the LLM is not available or its answer is unusable; what was emitted remains valid.
        """
        writer = _PlanWriter(self._llm, request, catalogue, emit=emit, seconds=seconds)
        budget = self._llm.context_tokens - self._llm.answer_tokens
        builder, tokens = self._prompting, self._llm.count_tokens
        first = await asyncio.to_thread(builder.planning_prompt, request, catalogue, budget, tokens)
        if not first.names:
            raise LLMPlanError("the context of the LLM is too small for a single task", writer.usage)
        try:
            await writer.write(first)
            faults = writer.faults
            if faults:
                prompt = request, catalogue
                second = await asyncio.to_thread(
                    builder.repair_prompt, prompt, writer.text, "\n".join(faults), budget, tokens
                )
                await writer.write(second)
            await writer.finish(first.notes)
        except LLMError as error:
            raise LLMPlanError(str(error), writer.usage) from error
        reason = "The LLM planned it and corrected itself once." if faults else "The LLM planned it."
        version = self._prompting.version
        return Decision(CONTROLLER, reason, llm_model=self.model, usage=writer.usage, version=version)


class _PlanWriter:
    """State of one plan while it is written."""

    def __init__(self, llm: LLM, request: Request, catalogue: Catalogue, *, emit: Emit, seconds: float | None) -> None:
        self._llm, self._goal, self._catalogue, self._emit = llm, request.goal, catalogue, emit
        self._material = Material.of(request)
        inputs = {item.name: item.value for item in self._material.items}
        failed = request.goal.failed if isinstance(request.goal, Replan) else ()
        limit = request.limit or HARD_LIMIT
        plan = PlanAssembler(request.standing, failed)
        self._repairer = PlanRepairer(catalogue, inputs, plan, limit, resolved=self._material.resolved)
        self._deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self._is_truncated = False
        self._dropped: list[str] = []
        """Descriptions of ignored parts of the last answer."""
        self._noted_sources: list[str] = []
        """Parts of the request that notes cover."""
        self.text = ""
        """Text of the last answer."""
        self.usage = Usage()

    @property
    def faults(self) -> list[str]:
        """Faults of the plan so far, as stated in the repair prompt."""
        return [*map(str, self._repairer.faults), *self._dropped, *([TRUNCATED] if self._is_truncated else [])]

    async def write(self, prompt: PlanPrompt) -> None:
        """Calls the LLM and emits tasks as soon as they are complete.

        Raises:
            LLMError: the answer is missing or incomplete.
        """
        if prompt.cut:
            log.info("plan prompt trimmed", **prompt.cut)
        reader = PlanReader()
        schema = plan_schema([self._catalogue[name] for name in prompt.names])
        stream = self._llm.stream(prompt.messages, schema=schema, timeout_seconds=self._seconds)
        async with stream as reply:
            try:
                async for piece in reply:
                    await self._read_text(reader, piece)
            finally:
                self.usage += reply.usage
        self.text, self._is_truncated, self._dropped = (
            reply.text,
            reply.is_truncated or reader.is_incomplete,
            reader.dropped,
        )
        await self._emit_tasks(self._repairer.close(cut=self._is_truncated))

    async def finish(self, notes: Iterable[Note]) -> None:
        """Emits the remaining notes.

        Raises:
            LLMPlanError: the answers contain nothing usable.
        """
        is_usable = bool(self._repairer.has_planned or self._noted_sources or _NOTHING.fullmatch(self.text))
        is_readable = is_usable or bool(self._repairer.faults)
        self._llm.record_answer(valid=is_readable)
        if not is_usable:
            what = "none of the tasks the LLM planned can be run" if is_readable else "what the LLM wrote is no plan"
            raise LLMPlanError(what, self.usage)
        for note in (*notes, *self._unmapped()):
            await self._emit(note)
        if not (self._repairer.has_planned or self._noted_sources) and isinstance(self._goal, New):
            await self._emit(Note(NoteKind.CHAT, "Nothing in this calls for a task."))

    @property
    def _seconds(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - asyncio.get_running_loop().time(), 0.0)

    async def _read_text(self, reader: PlanReader, piece: str) -> None:
        known = len(reader.notes)
        for raw in reader.feed(piece):
            await self._emit_tasks(self._repairer.add(raw))
        for note in reader.notes[known:]:
            self._noted_sources.append(note.source)
            await self._emit(Note(note.kind, note.text, note.source))

    async def _emit_tasks(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            await self._emit(task)

    def _unmapped(self) -> Iterable[Note]:
        faults = [
            fault for fault in self._repairer.faults if fault.source not in self._noted_sources or not fault.source
        ]
        for fault in faults[:MAX_UNMAPPED_NOTES]:
            words = fault.source or fault.task
            yield Note(NoteKind.UNMAPPED, f"“{words}” could not be planned: {fault.message}.", fault.source)
        if more := faults[MAX_UNMAPPED_NOTES:]:
            yield Note(NoteKind.UNMAPPED, f"{len(more)} more could not be planned.")
        if self._dropped:
            yield Note(NoteKind.UNMAPPED, f"Part of the plan could not be read: {'; '.join(self._dropped)}.")
        if self._is_truncated:
            yield Note(NoteKind.UNMAPPED, "The plan was truncated; it may lack some tasks.")
