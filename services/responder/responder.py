"""Composes the answer of a run: by an LLM where possible, else from a template, resuming answers already started."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import structlog

from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_COMPOSED, CONTROLLER_LLM, Decision
from services.common.errors import FailedPrecondition, InvalidRequest, ModelFailed
from services.responder.llm_answer import LLMAnswer, LLMWriter
from services.responder.prompt import VERSION
from services.responder.resume import (
    FINISHED,
    INTERRUPTED,
    LENGTH_LIMIT,
    STOPPED_EARLY,
    ending,
    rest_of_template_answer,
)
from services.responder.run_summary import RunSummary
from services.responder.template_answer import render_answer

log = structlog.get_logger(__name__)

MAX_CHUNK_LENGTH = 800
"""Characters of one streamed text."""

RESERVE_SECONDS = 2.0
"""Part of the call's time reserved for the template answer, in case the LLM does not finish."""


ANSWER_SCHEMA = "ANSWER_SCHEMA"
"""Reason of an answer that is missing because it would not match the requested JSON schema."""

WRITTEN_BEFORE = "Written by an LLM before another orchestrator took over the run."

ResponseEvent = str | Decision
"""Event of an answer: a text, or the Decision, which comes last."""

Emit = Callable[[ResponseEvent], Awaitable[None]]


class Responder:
    """Writes the answer of a run.

    Args:
        writer: LLM that writes answers; None: answers are composed from templates.
    """

    def __init__(self, writer: LLMWriter | None) -> None:
        self._writer = writer

    async def respond(
        self, summary: RunSummary, emit: Emit, *, seconds: float | None = None, without_llm: bool = False
    ) -> None:
        """Emits the answer, or the rest of an answer that was sent in part.

        Args:
            summary: results of the run.
            emit: receives each text, then the decision.
            seconds: time limit.
            without_llm: do not call the LLM, because the run has used its token budget.

        Raises:
            InvalidRequest: EMPTY: there is neither a request nor a result.
            FailedPrecondition: ANSWER_SCHEMA: no LLM can write an answer of the JSON schema.
            ModelFailed: ANSWER_SCHEMA: the LLM did not write one.
        """
        if not summary.request.strip() and not summary.tasks and not summary.notes and summary.failure is None:
            raise InvalidRequest(
                "the request is empty",
                reason="EMPTY",
                remedy="send the conversation; its last turn is the request",
            )
        summary = replace(summary, llm=self._writer is not None)
        if summary.json_schema:
            await self._respond_json(summary, emit, seconds, without_llm=without_llm)
            return
        if self._writer is None or without_llm or rest_of_template_answer(summary) is not None:
            await _emit_text(remaining_answer(summary), emit)
            fell_back_because = "the run's tokens are spent" if without_llm and self._writer else ""
            reason = "Composed from the results, without an LLM."
            await emit(Decision(controller=CONTROLLER_COMPOSED, reason=reason, fell_back_because=fell_back_because))
        else:
            await emit(await self._write_with_llm(self._writer, summary, emit, seconds))

    async def _respond_json(self, summary: RunSummary, emit: Emit, seconds: float | None, *, without_llm: bool) -> None:
        """Emits an answer that matches the JSON schema of the run, in one piece, so that no part of it is ever sent.

        Raises:
            FailedPrecondition: ANSWER_SCHEMA, no LLM can write it.
            ModelFailed: ANSWER_SCHEMA, the LLM did not write it.
        """
        if self._writer is None or without_llm:
            because = "the run's tokens are spent" if self._writer else "answers are written without an LLM here"
            raise FailedPrecondition(
                f"the answer cannot follow the JSON schema: {because}",
                reason=ANSWER_SCHEMA,
                remedy="leave the schema out and read the results of the tasks, or configure an LLM (LLM_BASE_URL)",
            )
        if summary.sent:
            await emit(Decision(controller=CONTROLLER_LLM, reason=WRITTEN_BEFORE, llm_model=self._writer.model))
            return
        remaining_seconds = None if seconds is None else max(seconds - RESERVE_SECONDS, 0.0)
        answer = await self._writer.write_json(summary, remaining_seconds)
        if answer.text:
            await emit(answer.text)
        await emit(
            Decision(
                controller=CONTROLLER_LLM,
                reason="No answer: the LLM did not follow the JSON schema."
                if answer.error_message
                else "Written by an LLM from the results, in JSON of the requested schema.",
                llm_model=self._writer.model,
                usage=answer.usage.to_proto(),
                version=VERSION,
            )
        )
        if answer.error_message:
            raise ModelFailed(
                f"the answer does not follow the JSON schema: {answer.error_message}",
                reason=ANSWER_SCHEMA,
                remedy="try again, simplify the schema, or request an answer in words",
            )

    async def _write_with_llm(
        self, writer: LLMWriter, summary: RunSummary, emit: Emit, seconds: float | None
    ) -> Decision:
        remaining_seconds = None if seconds is None else max(seconds - RESERVE_SECONDS, 0.0)
        answer = await writer.write(summary, emit, remaining_seconds)
        await _emit_text(closing_text(summary, answer), emit)
        if not answer.error_message:
            limit = ", to its limit of tokens." if answer.is_truncated else "."
            reason = f"Written by an LLM from the results{limit}"
            return Decision(
                controller=CONTROLLER_LLM,
                reason=reason,
                llm_model=writer.model,
                usage=answer.usage.to_proto(),
                version=VERSION,
            )
        log.info("LLM answer incomplete", model=writer.model, partial=bool(answer.text), reason=answer.error_message)
        reason = (
            "Completed from the results after the LLM stopped early." if answer.text else "Composed from the results."
        )
        return Decision(
            controller=CONTROLLER_COMPOSED,
            reason=reason,
            llm_model=writer.model,
            fell_back_because=answer.error_message,
            usage=answer.usage.to_proto(),
        )


def remaining_answer(summary: RunSummary) -> str:
    """The template answer, without the part that was already sent."""
    continuation = rest_of_template_answer(summary)
    if continuation is not None:
        return continuation
    return ending(summary, INTERRUPTED, summary.sent) if summary.sent else render_answer(summary)


def closing_text(summary: RunSummary, answer: LLMAnswer) -> str:
    """The text to send after the LLM's answer."""
    text = summary.sent + answer.text
    if answer.is_stopped:
        return ""
    if answer.error_message:
        return ending(summary, STOPPED_EARLY, text) if answer.text else remaining_answer(summary)
    return ending(summary, LENGTH_LIMIT if answer.is_truncated else FINISHED, text)


async def _emit_text(text: str, emit: Emit) -> None:
    for piece in split_text(text):
        await emit(piece)


def split_text(text: str) -> Iterator[str]:
    """Splits a text into chunks of at most MAX_CHUNK_LENGTH characters."""
    return (text[start : start + MAX_CHUNK_LENGTH] for start in range(0, len(text), MAX_CHUNK_LENGTH))
