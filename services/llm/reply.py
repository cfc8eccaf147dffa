"""A streamed answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from services.llm.usage import Usage

if TYPE_CHECKING:  # the openai package is imported when an endpoint is opened
    from services.llm.request import AnswerStream


class Reply:
    """Async iterator over the text of an answer, to be iterated once.

    Raises:
        LLMError: while iterating, if the answer is not complete.
    """

    def __init__(self, answer: "AnswerStream", usage: Callable[[str], Usage]) -> None:
        self.text = ""
        """Text received so far."""
        self._answer = answer
        self._usage = usage

    @property
    def model(self) -> str:
        """Name of the answering model, as reported by the endpoint."""
        return self._answer.model

    @property
    def is_truncated(self) -> bool:
        """Whether the answer ended at its token limit."""
        return self._answer.finish == "length"

    @property
    def usage(self) -> Usage:
        """Usage so far: estimated until the end, then exact if the endpoint reports it."""
        return self._usage(self.text)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        next_text = await self._answer.next_text()
        if next_text is None:
            raise StopAsyncIteration
        self.text += next_text
        return next_text
