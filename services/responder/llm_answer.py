"""Answers of an LLM: in words, streamed through the filters, or as JSON of a schema."""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from services.common import json_schema
from services.llm.client import LLM, LLMError, Schema, Usage
from services.responder.links import AllowedLinks
from services.responder.output_filter import OutputFilter, ReasoningFilter
from services.responder.prompt import build_prompt
from services.responder.resume import RepetitionFilter
from services.responder.run_summary import RunSummary

EMPTY_ANSWER = "the LLM gave an empty answer"
NO_ANSWER_TOKENS = "the LLM reached its token limit before its answer began; raise LLM_ANSWER_TOKENS"

TRUNCATED_JSON = "the LLM reached its token limit before its JSON was complete; raise LLM_ANSWER_TOKENS"

_CODE_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)

Show = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class LLMAnswer:
    """Answer of an LLM.

    Args:
        text: the text that was emitted.
        is_truncated: the answer ended at the token limit.
        error_message: why the answer is incomplete or missing; empty if it is complete.
        usage: of the LLM call.
    """

    text: str = ""
    is_truncated: bool = False
    error_message: str = ""
    usage: Usage = field(default_factory=Usage)
    is_stopped: bool = False
    """Whether a stop text ended it."""


class LLMWriter:
    """Writes answers with an LLM.

    Args:
        llm: the LLM.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.model = llm.model

    async def write(self, summary: RunSummary, show: Show, seconds: float | None) -> LLMAnswer:
        """Emits the answer, or the rest of an answer that was sent in part, as it is written.

        Args:
            summary: results of the run.
            show: receives each text.
            seconds: time limit; None: the timeout of the endpoint's settings.
        """
        answer = LLMAnswer()

        async def emit(text: str) -> None:
            if text:
                answer.text += text
                await show(text)

        try:
            prompt = build_prompt(summary, self._llm)
            stream = _Stream(prompt.allowed, summary)
            async with self._llm.stream(prompt.messages, timeout_seconds=seconds) as reply:
                try:
                    async for piece in reply:
                        await emit(stream.add(piece))
                        if stream.is_stopped:
                            break
                finally:
                    answer.usage, answer.is_truncated = reply.usage, reply.is_truncated
        except LLMError as error:
            answer.error_message = str(error)
            return answer
        if not answer.is_truncated:
            await emit(stream.end())
        answer.is_stopped = stream.is_stopped
        is_valid = bool(answer.text.strip() or summary.sent or answer.is_stopped)
        self._llm.record_answer(valid=is_valid)
        answer.error_message = "" if is_valid else NO_ANSWER_TOKENS if answer.is_truncated else EMPTY_ANSWER
        return answer

    async def write_json(self, summary: RunSummary, seconds: float | None) -> LLMAnswer:
        """Writes an answer that matches the JSON schema of the run; its text is empty if there is none.

        Args:
            summary: results of the run, with a JSON schema.
            seconds: time limit; None: the timeout of the endpoint's settings.
        """
        content = json.loads(summary.json_schema)
        try:
            messages = build_prompt(summary, self._llm).messages
            schema = Schema("answer", content, is_from_client=True)
            reply = await self._llm.complete(messages, schema=schema, timeout_seconds=seconds)
        except LLMError as error:
            return LLMAnswer(error_message=str(error))
        self._llm.record_answer(valid=bool(reply.text.strip()))
        if reply.is_truncated:
            return LLMAnswer(error_message=TRUNCATED_JSON, usage=reply.usage)
        reasoning = ReasoningFilter()
        text = (reasoning.add(reply.text) + reasoning.end()).strip()
        text = fence[1] if (fence := _CODE_FENCE.fullmatch(text)) else text
        problem = json_schema.find_problem(content, text)
        return LLMAnswer("" if problem else text, error_message=problem, usage=reply.usage)


class StopFilter:
    """Ends a text before the first of several stop texts, also where chunks divide one.

    Args:
        stops: the stop texts.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.is_stopped = False
        self._stops = stops
        self._buffer = ""

    def add(self, text: str) -> str:
        """Adds text and returns what can be emitted now."""
        if self.is_stopped:
            return ""
        self._buffer += text
        found = [position for stop in self._stops if (position := self._buffer.find(stop)) >= 0]
        self.is_stopped = bool(found)
        return self._take(min(found) if found else len(self._buffer) - self._partial_length())

    def end(self) -> str:
        """Returns the text held back; no more text follows."""
        return "" if self.is_stopped else self._take(len(self._buffer))

    def _partial_length(self) -> int:
        """Length of the end of the buffer with which a stop text may begin."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        lengths = range(min(longest, len(self._buffer)), 0, -1)
        return next((each for each in lengths if any(stop.startswith(self._buffer[-each:]) for stop in self._stops)), 0)

    def _take(self, length: int) -> str:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        return text


class _Stream:
    """Chain of the filters between the LLM and the reader."""

    def __init__(self, allowed: AllowedLinks, summary: RunSummary) -> None:
        self._reasoning, self._filter, self._repetitions, self._stop = (
            ReasoningFilter(),
            OutputFilter(allowed),
            RepetitionFilter(summary.sent),
            StopFilter(summary.stop),
        )

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_stopped

    def add(self, text: str) -> str:
        return self._stop.add(self._repetitions.add(self._filter.add(self._reasoning.add(text))))

    def end(self) -> str:
        rest = self._repetitions.add(self._filter.end()) + self._repetitions.end()
        return self.add(self._reasoning.end()) + self._stop.add(rest) + self._stop.end()
