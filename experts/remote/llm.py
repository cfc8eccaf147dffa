"""Text tasks by the LLM that the house is configured with."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from experts.endpoints import prompts
from experts.endpoints.data_policy import check_may_leave
from experts.endpoints.prompts import CHATS, SEEING
from experts.host.handler import Call, Inputs, Outputs, Parameters
from experts.remote.answers import Made
from experts.remote.model import STAYS
from services.common.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    ModelFailed,
    Overloaded,
    ServiceError,
    Unavailable,
)
from services.llm.client import LLM, Message, Schema, Unusable, Why
from services.llm.settings import LlmSettings

TASKS = tuple(task for task in CHATS if task not in SEEING)

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._/-]+")
_CODES: dict[Why, type[ServiceError]] = {
    Why.DOWN: Unavailable,
    Why.SLOW: DeadlineExceeded,
    Why.RATE_LIMITED: Overloaded,
}
"""What is not here turns callers to the next candidate."""


def model_id(settings: LlmSettings) -> str:
    """The endpoint's name of the model, as an id of ours."""
    return f"llm/{_NOT_IN_IDS.sub('-', settings.model)}"


@dataclass
class Line:
    """The LLM, while it is open."""

    settings: LlmSettings
    llm: LLM | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Opens it within the block; nothing is sent before it is asked."""
        async with LLM.opened(self.settings, role="remote") as llm:
            self.llm = llm
            yield
        self.llm = None


class Writer:
    """One task of the LLM's."""

    def __init__(self, task: str, line: Line) -> None:
        self._task, self._line, self._id = task, line, model_id(line.settings)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Made:
        check_may_leave(self._id, STAYS)
        return Made(prompts.asked(self._task, inputs, parameters), inputs, parameters, self._id)

    def cost(self, _item: Made) -> float:
        return 1.0

    async def ask(self, item: Made, _call: Call) -> Made:
        check_may_leave(self._id, STAYS)
        if self._line.llm is None:
            raise Unavailable(f"{self._id} is not open yet", remedy="try again shortly")
        prompt: prompts.Prompt = item.answer
        messages = (Message("system", prompt.system), Message("user", prompt.user))
        schema = Schema(self._task, prompt.schema) if prompt.schema else None
        try:
            reply = await self._line.llm.complete(messages, schema=schema, answer_tokens=prompt.max_tokens)
        except Unusable as error:
            raise _failure(error) from error
        return replace(item, answer=reply.text)

    def finish(self, raw: Made) -> Outputs:
        return prompts.read(self._task, raw.answer, raw.inputs, raw.parameters)


def _failure(error: Unusable) -> ServiceError:
    if error.why is Why.POLICY:
        return FailedPrecondition(str(error), reason="POLICY", remedy=error.remedy)
    if error.why in (Why.OPEN, Why.REFUSED):
        return FailedPrecondition(str(error), reason="LOAD_FAILED", remedy=error.remedy)
    return _CODES.get(error.why, ModelFailed)(str(error), remedy=error.remedy)
