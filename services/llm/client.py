"""Asking an LLM: one object per role and process, over what all roles of the process share of an endpoint."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Self

from services.llm.endpoint_capabilities import Ask
from services.llm.endpoints import shared
from services.llm.llm_error import Unusable, Why
from services.llm.messages import Message, Schema
from services.llm.reply import Reply
from services.llm.settings import LlmSettings
from services.llm.timeouts import Patience
from services.llm.usage import Usage

if TYPE_CHECKING:  # the openai package is loaded where an endpoint is opened
    from services.llm.retrying_call import Line

__all__ = ["LLM", "Message", "Reply", "Schema", "Unusable", "Usage", "Why"]


class LLM:
    """An endpoint as one role uses it."""

    def __init__(self, line: "Line") -> None:
        self.model = line.settings.model
        self.context_tokens = line.settings.context_tokens
        """Of prompt and answer together."""
        self.answer_tokens = line.settings.answer_tokens
        """Of the answer."""
        self._line = line

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, settings: LlmSettings, *, role: str, clock: Callable[[], float] = time.monotonic
    ) -> AsyncIterator[Self]:
        """The client within the block; nothing is sent before it is asked.

        Args:
            settings: with a base_url.
            role: who asks, as metrics and traces name it; one of few.
            clock: of the breaker; the first role to open an endpoint's model decides.
        """
        # It takes 1.6 s and 40 MB: a house without an LLM does not pay for it.
        from services.llm.request import connected  # noqa: PLC0415
        from services.llm.retrying_call import Line  # noqa: PLC0415

        with shared(settings, clock) as (slots, known):
            async with connected(settings) as connection:
                yield cls(Line(settings, role, connection, slots, known))

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
        from services.llm.retrying_call import Call  # noqa: PLC0415  # loaded since `opened`

        return Call(self._line, Ask(tuple(messages), schema, answer_tokens or self.answer_tokens), within)

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

    async def models(self) -> list[str]:
        """Names of the models the endpoint lists.

        Raises:
            Unusable: it lists none.
        """
        return await self._line.connection.models(Patience(self._line.settings, None))

    def judged(self, ok: bool) -> None:
        """Whether the last answer made sense: nonsense several times in a row opens the breaker."""
        self._line.known.breaker.judged(ok=ok)

    def tokens(self, text: str) -> int:
        """How many tokens the text takes, estimated high, corrected by what the endpoint reports."""
        return self._line.known.estimate.tokens(text)
