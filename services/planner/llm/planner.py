"""A plan by an LLM: asked once, read while it is written, mended by itself where rules cannot."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable

import structlog

from services.llm.client import LLM, LLMError, Usage
from services.planner.llm.inputs import Material
from services.planner.llm.json_stream import Reader
from services.planner.llm.prompt import Asked, Prompting
from services.planner.llm.repair import Drafting
from services.planner.llm.schema import plan_schema
from services.planner.plan import HARD_LIMIT, Catalogue, Decision, Note, NoteKind, Task
from services.planner.request import New, Replan, Request

log = structlog.get_logger(__name__)

CONTROLLER = "llm"

Tell = Callable[[Task | Note], Awaitable[None]]

MOST_UNMAPPED = 8
"""Most remarks on single tasks that could not be planned."""

BROKE_OFF = "the answer broke off: whatever of the request it leaves out is still wanted"

_NOTHING = re.compile(r"[\s`{]*(?:json\b)?[\s`{]*(?:[\"']?tasks[\"']?\s*:)?\s*\[\s*\][\s`}.]*", re.IGNORECASE)
"""An answer that is an empty plan."""


class GaveUp(Exception):
    """The LLM gave no plan, or not all of it; the message is a sentence without content."""

    def __init__(self, message: str, usage: Usage) -> None:
        super().__init__(message)
        self.usage = usage


class ByLlm:
    """Plans requests by asking an LLM."""

    def __init__(self, llm: LLM, prompting: Prompting) -> None:
        self._llm = llm
        self._prompting = prompting

    @property
    def model(self) -> str:
        """As it is asked for."""
        return self._llm.model

    async def plan(
        self, request: Request, catalogue: Catalogue, tell: Tell, *, seconds: float | None = None
    ) -> Decision:
        """Tells of tasks and remarks while they are written; each task is valid after those before it.

        Args:
            request: asks for more than a check.
            catalogue: what may be planned.
            tell: told of tasks and remarks.
            seconds: that it may take, if that is limited.

        Raises:
            GaveUp: the LLM is not usable or writes nonsense; what has been told stands.
        """
        writing = _Writing(self._llm, request, catalogue, tell=tell, seconds=seconds)
        budget = self._llm.context_tokens - self._llm.answer_tokens
        make, tokens = self._prompting, self._llm.count_tokens
        first = await asyncio.to_thread(make.planning, request, catalogue, budget, tokens)
        if not first.names:
            raise GaveUp("the context of the LLM has no room for a single task", writing.usage)
        try:
            await writing.write(first)
            wrong = writing.wrong
            if wrong:
                asked = request, catalogue
                second = await asyncio.to_thread(make.mending, asked, writing.text, "\n".join(wrong), budget, tokens)
                await writing.write(second)
            await writing.conclude(first.notes)
        except LLMError as error:
            raise GaveUp(str(error), writing.usage) from error
        reason = "The LLM planned it and corrected itself once." if wrong else "The LLM planned it."
        version = self._prompting.version
        return Decision(CONTROLLER, reason, llm_model=self.model, usage=writing.usage, version=version)


class _Writing:
    """A plan while it is written."""

    def __init__(self, llm: LLM, request: Request, catalogue: Catalogue, *, tell: Tell, seconds: float | None) -> None:
        self._llm, self._goal, self._tell = llm, request.goal, tell
        self._material = Material.of(request)
        inputs = {item.name: item.value for item in self._material.items}
        failed = request.goal.failed if isinstance(request.goal, Replan) else ()
        limit = request.limit or HARD_LIMIT
        self._drafting = Drafting(catalogue, inputs, request.standing, limit, failed=failed)
        self._ends = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self._cut = False
        self._dropped: list[str] = []
        """What of the last answer was not read."""
        self._remarked: list[str] = []
        """The words that remarks are about."""
        self.text = ""
        """The last answer."""
        self.usage = Usage()

    @property
    def wrong(self) -> list[str]:
        """What is wrong with the plan so far, as its writer is told."""
        return [*map(str, self._drafting.complaints), *self._dropped, *([BROKE_OFF] if self._cut else [])]

    async def write(self, asked: Asked) -> None:
        """Asks, and tells of what can be read as soon as it can.

        Raises:
            LLMError: there is no answer, or not all of it.
        """
        if asked.cut:
            log.info("prompt trimmed", **asked.cut)
        reader = Reader()
        stream = self._llm.stream(asked.messages, schema=plan_schema(asked.names), timeout_seconds=self._seconds)
        async with stream as reply:
            try:
                async for piece in reply:
                    await self._take(reader, piece)
            finally:
                self.usage += reply.usage
        self.text, self._cut, self._dropped = reply.text, reply.is_truncated or reader.unfinished, reader.dropped
        await self._emit(self._drafting.close(cut=self._cut))

    async def conclude(self, notes: Iterable[Note]) -> None:
        """Tells what is left to tell.

        Raises:
            GaveUp: nothing of what was written can be used.
        """
        usable = bool(self._drafting.tasks or self._remarked or _NOTHING.fullmatch(self.text))
        readable = usable or bool(self._drafting.complaints)
        self._llm.record_answer(valid=readable)
        if not usable:
            what = "none of the tasks the LLM planned can be run" if readable else "what the LLM wrote is no plan"
            raise GaveUp(what, self.usage)
        for note in (*notes, *self._unmapped()):
            await self._tell(note)
        if not (self._drafting.tasks or self._remarked) and isinstance(self._goal, New):
            await self._tell(Note(NoteKind.CHAT, "Nothing in this calls for a task."))

    @property
    def _seconds(self) -> float | None:
        return None if self._ends is None else max(self._ends - asyncio.get_running_loop().time(), 0.0)

    async def _take(self, reader: Reader, piece: str) -> None:
        known = len(reader.notes)
        for raw in reader.feed(piece):
            await self._emit(self._drafting.add(raw))
        for note in reader.notes[known:]:
            self._remarked.append(note.source)
            await self._tell(Note(note.kind, note.text, note.source))

    async def _emit(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            await self._tell(self._material.resolved(task))

    def _unmapped(self) -> Iterable[Note]:
        faults = [
            fault for fault in self._drafting.complaints if fault.source not in self._remarked or not fault.source
        ]
        for fault in faults[:MOST_UNMAPPED]:
            words = fault.source or fault.task
            yield Note(NoteKind.UNMAPPED, f"“{words}” could not be planned: {fault.message}.", fault.source)
        if more := faults[MOST_UNMAPPED:]:
            yield Note(NoteKind.UNMAPPED, f"{len(more)} more could not be planned.")
        if self._dropped:
            yield Note(NoteKind.UNMAPPED, f"Part of the plan could not be read: {'; '.join(self._dropped)}.")
        if self._cut:
            yield Note(NoteKind.UNMAPPED, "The plan broke off; there may be more to do than it holds.")
