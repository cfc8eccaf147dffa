"""Asking an LLM: one object per role and process, over what all roles of the process share of an endpoint."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self

from services.llm.messages import Message, Schema
from services.llm.reply import Reply
from services.llm.settings import LlmSettings
from services.llm.unusable import Unusable, Why
from services.llm.usage import Usage

__all__ = ["LLM", "Message", "Reply", "Schema", "Unusable", "Usage", "Why"]


class LLM:
    """An endpoint as one role uses it."""

    def __init__(self, settings: LlmSettings) -> None:
        self.model = settings.model
        self.context_tokens = settings.context_tokens
        self.answer_tokens = settings.answer_tokens

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: LlmSettings) -> AsyncIterator[Self]:
        """The client within the block; settings.base_url must be set. Nothing is sent before it is asked."""
        yield cls(settings)

    def stream(
        self,
        messages: Sequence[Message],
        *,
        schema: Schema | None = None,
        answer_tokens: int | None = None,
        within: float | None = None,
    ) -> AbstractAsyncContextManager[Reply]:
        """An answer as it is written; entering the block waits for its first text, leaving it hangs up.

        Args:
            messages: the prompt.
            schema: what the answer must look like, where the endpoint can be told.
            answer_tokens: at most; None: as the settings say.
            within: seconds the call may take; None: as the settings say, which hold in any case.

        Raises:
            Unusable: on entering and while iterating; nothing else.
        """
        raise NotImplementedError

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Schema | None = None,
        answer_tokens: int | None = None,
        within: float | None = None,
    ) -> Reply:
        """The whole answer, in `.text`.

        Raises:
            Unusable: as for `stream`.
        """
        async with self.stream(messages, schema=schema, answer_tokens=answer_tokens, within=within) as reply:
            async for _ in reply:
                pass
        return reply

    def judged(self, ok: bool) -> None:
        """Whether the last answer made sense: nonsense several times in a row opens the breaker."""

    def tokens(self, text: str) -> int:
        """How many tokens the text takes, estimated high, corrected by what the endpoint reports."""
        return len(text)
