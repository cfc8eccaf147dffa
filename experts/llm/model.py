"""The LLM for one task, as a RemoteHandler."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from experts.endpoints.data_policy import check_data_policy
from experts.host.handler import Inputs, Outputs, Parameters, RemoteHandler, UnbatchedCall
from experts.llm.documents import DocumentReader
from experts.llm.replies import MissingEvidence
from experts.llm.requests import Request, build_document_question, build_request
from services.common.errors import (
    CorruptData,
    DeadlineExceeded,
    FailedPrecondition,
    ModelFailed,
    Overloaded,
    ServiceError,
    Unavailable,
)
from services.llm.client import LLM, LLMError, LLMErrorReason, Message, Reply
from services.llm.settings import LlmSettings

POLICY_REMEDY = (
    "allow the data policy open for this request or, if the endpoint is part of the deployment, set LLM_INTERNAL=true"
)
_INVALID_ID_CHARACTERS = re.compile(r"[^A-Za-z0-9._/-]+")
_REPEATED_CHARACTERS = 500
"""How much of an invalid reply the LLM sees again."""
_CODES: dict[LLMErrorReason, type[ServiceError]] = {
    LLMErrorReason.DOWN: Unavailable,
    LLMErrorReason.SLOW: DeadlineExceeded,
    LLMErrorReason.RATE_LIMITED: Overloaded,
}
"""Other reasons become ModelFailed, after which callers use the next candidate."""


def model_id(settings: LlmSettings) -> str:
    """Returns the model id for the endpoint's name of the model."""
    return f"llm/{_INVALID_ID_CHARACTERS.sub('-', settings.model)}"


@dataclass
class LlmConnection:
    """Connection to the LLM; `llm` is None while it is closed."""

    settings: LlmSettings
    llm: LLM | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Opens it within the block; nothing is sent before the first call."""
        async with LLM.open(self.settings, role="expert") as llm:
            self.llm = llm
            yield
        self.llm = None


class LlmModel(RemoteHandler):
    """Calls the LLM, and once more with the reason if its reply is not valid."""

    def __init__(self, task: str, connection: LlmConnection) -> None:
        self._task, self._connection, self._id = task, connection, model_id(connection.settings)
        self._documents = DocumentReader(with_pictures=connection.settings.vision)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Request:
        """Builds the request; a document is read here, so that its text is recognized on this machine."""
        if not self._connection.settings.internal:
            check_data_policy(self._id, POLICY_REMEDY)
        if self._task == "document-question-answering":
            return build_document_question(inputs["question"], self._documents.read(inputs["image"]))
        return build_request(self._task, inputs, parameters)

    async def infer(self, item: Request, call: UnbatchedCall) -> Outputs:
        llm = self._connection.llm
        if llm is None:
            raise Unavailable(f"{self._id} is not connected yet", remedy="try again shortly")
        if item.declined and not item.passages and not item.images:
            return item.declined
        messages = item.messages(llm)
        reply: Reply | None = None
        try:
            reply = await _complete(llm, messages, item, call)
            return _read(llm, item, reply)
        except LLMError as error:
            if error.reason is not LLMErrorReason.BROKEN:
                raise _translate_error(error) from error
        except CorruptData as error:
            messages += [
                Message("assistant", reply.text[:_REPEATED_CHARACTERS] if reply else ""),
                Message("user", f"This is not valid: {error.message}. Answer again, and only as requested."),
            ]
        try:
            return _read(llm, item, await _complete(llm, messages, item, call))
        except MissingEvidence:
            if item.declined is None:
                raise
            return item.declined
        except LLMError as error:
            raise _translate_error(error) from error

    def finish(self, raw: Outputs) -> Outputs:
        return raw

    def close(self) -> None:
        self._documents.close()


async def _complete(llm: LLM, messages: list[Message], request: Request, call: UnbatchedCall) -> Reply:
    """Calls the LLM, and charges the call with what it used, also if its answer is incomplete."""
    stream = llm.stream(messages, schema=request.schema, answer_tokens=request.limit(llm))
    async with stream as reply:
        try:
            async for _ in reply:
                pass
        finally:
            usage = reply.usage
            call.add_llm_usage(usage.input_tokens, usage.output_tokens, usage.cost)
    return reply


def _read(llm: LLM, request: Request, reply: Reply) -> Outputs:
    """Reads the reply.

    Raises:
        CorruptData: it is not valid.
    """
    try:
        _check_complete(request, reply)
        outputs = request.read(reply.text)
    except MissingEvidence:
        raise  # says nothing about the endpoint
    except CorruptData:
        llm.record_answer(valid=False)
        raise
    llm.record_answer(valid=True)
    return outputs


def _check_complete(request: Request, reply: Reply) -> None:
    if reply.is_truncated and request.answer_tokens is None:
        raise CorruptData(
            "the LLM's answer was cut off at its token limit",
            remedy="send a shorter text, or raise LLM_ANSWER_TOKENS",
        )


def _translate_error(error: LLMError) -> ServiceError:
    if error.reason is LLMErrorReason.POLICY:
        return FailedPrecondition(str(error), reason="POLICY", remedy=error.remedy)
    if error.reason in (LLMErrorReason.OPEN, LLMErrorReason.REFUSED):
        return FailedPrecondition(str(error), reason="LOAD_FAILED", remedy=error.remedy)
    return _CODES.get(error.reason, ModelFailed)(str(error), remedy=error.remedy)
