"""Text tasks run by the deployment's configured LLM."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from experts.endpoints import prompts
from experts.endpoints.data_policy import check_data_policy
from experts.endpoints.prompts import CHAT_TASKS, VISION_TASKS
from experts.host.handler import Call, Inputs, Outputs, Parameters, RemoteHandler
from experts.remote.answers import RemoteCall
from experts.remote.model import POLICY_REMEDY
from services.common.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    ModelFailed,
    Overloaded,
    ServiceError,
    Unavailable,
)
from services.llm.client import LLM, LLMError, LLMErrorReason, Message, Schema
from services.llm.settings import LlmSettings

TASKS = tuple(task for task in CHAT_TASKS if task not in VISION_TASKS)

_INVALID_ID_CHARACTERS = re.compile(r"[^A-Za-z0-9._/-]+")
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
        async with LLM.open(self.settings, role="remote") as llm:
            self.llm = llm
            yield
        self.llm = None


class LlmModel(RemoteHandler):
    """The LLM for one task."""

    def __init__(self, task: str, connection: LlmConnection) -> None:
        self._task, self._connection, self._id = task, connection, model_id(connection.settings)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> RemoteCall:
        check_data_policy(self._id, POLICY_REMEDY)
        return RemoteCall(prompts.build_prompt(self._task, inputs, parameters), inputs, parameters, self._id)

    async def infer(self, item: RemoteCall, _call: Call) -> RemoteCall:
        check_data_policy(self._id, POLICY_REMEDY)
        if self._connection.llm is None:
            raise Unavailable(f"{self._id} is not connected yet", remedy="try again shortly")
        prompt: prompts.Prompt = item.answer
        messages = (Message("system", prompt.system), Message("user", prompt.user))
        schema = Schema(self._task, prompt.schema) if prompt.schema else None
        try:
            reply = await self._connection.llm.complete(messages, schema=schema, answer_tokens=prompt.max_tokens)
        except LLMError as error:
            raise _translate_error(error) from error
        return replace(item, answer=reply.text)

    def finish(self, raw: RemoteCall) -> Outputs:
        return prompts.parse_reply(self._task, raw.answer, raw.inputs, raw.parameters)


def _translate_error(error: LLMError) -> ServiceError:
    if error.reason is LLMErrorReason.POLICY:
        return FailedPrecondition(str(error), reason="POLICY", remedy=error.remedy)
    if error.reason in (LLMErrorReason.OPEN, LLMErrorReason.REFUSED):
        return FailedPrecondition(str(error), reason="LOAD_FAILED", remedy=error.remedy)
    return _CODES.get(error.reason, ModelFailed)(str(error), remedy=error.remedy)
