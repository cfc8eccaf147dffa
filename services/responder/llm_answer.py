"""Streams the answer of an LLM through the filters."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from services.llm.client import LLM, LLMError, Usage
from services.responder.links import AllowedLinks
from services.responder.output_filter import OutputFilter, ReasoningFilter
from services.responder.prompt import build_prompt
from services.responder.resume import RepetitionFilter
from services.responder.run_summary import RunSummary

EMPTY_ANSWER = "the LLM gave an empty answer"
NO_ANSWER_TOKENS = "the LLM reached its token limit before its answer began; raise LLM_ANSWER_TOKENS"

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
            stream = _Stream(prompt.allowed, summary.sent)
            async with self._llm.stream(prompt.messages, timeout_seconds=seconds) as reply:
                try:
                    async for piece in reply:
                        await emit(stream.add(piece))
                finally:
                    answer.usage, answer.is_truncated = reply.usage, reply.is_truncated
        except LLMError as error:
            answer.error_message = str(error)
            return answer
        if not answer.is_truncated:
            await emit(stream.end())
        is_valid = bool(answer.text.strip() or summary.sent)
        self._llm.record_answer(valid=is_valid)
        answer.error_message = "" if is_valid else NO_ANSWER_TOKENS if answer.is_truncated else EMPTY_ANSWER
        return answer


class _Stream:
    """Chain of the filters between the LLM and the reader."""

    def __init__(self, allowed: AllowedLinks, sent: str) -> None:
        self._reasoning, self._filter, self._repetitions = (
            ReasoningFilter(),
            OutputFilter(allowed),
            RepetitionFilter(sent),
        )

    def add(self, text: str) -> str:
        return self._repetitions.add(self._filter.add(self._reasoning.add(text)))

    def end(self) -> str:
        return self.add(self._reasoning.end()) + self._repetitions.add(self._filter.end()) + self._repetitions.end()
