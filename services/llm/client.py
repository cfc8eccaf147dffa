"""Client of OpenAI-compatible LLM endpoints: one LLM object per role, its replies, and their usage."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from protos.hugginggpt.v1 import usage_pb2
from services.llm.endpoint_capabilities import ChatRequest
from services.llm.errors import LLMError, LLMErrorReason
from services.llm.prompt import Message, Schema
from services.llm.settings import LlmSettings

if TYPE_CHECKING:  # the openai package is imported when an endpoint is opened
    from services.llm.endpoint import ModelEndpoint
    from services.llm.streaming import AnswerStream

__all__ = ["LLM", "LLMError", "LLMErrorReason", "Message", "Reply", "Schema", "Usage"]


@dataclass(frozen=True)
class Usage:
    """Tokens, as reported by the endpoint or else estimated, cost and time of one or more calls.

    Args:
        input_tokens: of the prompt.
        output_tokens: of the answer.
        cost: in the currency of the price table; 0 without a price.
        busy_seconds: time of requests, without queueing and pauses.
        elapsed_seconds: time of the call.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    busy_seconds: float = 0.0
    elapsed_seconds: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        """Sums the usage of two consecutive calls."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.busy_seconds + other.busy_seconds,
            self.elapsed_seconds + other.elapsed_seconds,
        )

    def to_proto(self) -> usage_pb2.Usage:
        """Converts to the protobuf message."""
        usage = usage_pb2.Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens, cost=self.cost)
        usage.busy.FromTimedelta(timedelta(seconds=self.busy_seconds))
        usage.elapsed.FromTimedelta(timedelta(seconds=self.elapsed_seconds))
        return usage


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


class LLM:
    """A model at an endpoint, as used by one role."""

    def __init__(self, endpoint: "ModelEndpoint") -> None:
        self.model = endpoint.settings.model
        self.context_tokens = endpoint.settings.context_tokens
        """Limit of prompt and answer together."""
        self.answer_tokens = endpoint.settings.answer_tokens
        """Limit of the answer."""
        self._endpoint = endpoint

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: LlmSettings, *, role: str, clock: Callable[[], float] = time.monotonic
    ) -> AsyncIterator[Self]:
        """Opens the client for the block; no request is sent until the first call.

        Args:
            settings: must have a base_url.
            role: of the caller, for metrics and traces; low cardinality.
            clock: of the circuit breaker; the first role that opens the model of an endpoint sets it.
        """
        # The import takes 1.6 s and 40 MB, which deployments without an LLM save.
        from services.llm.endpoint import open_endpoint  # noqa: PLC0415

        async with open_endpoint(settings, role, clock) as endpoint:
            yield cls(endpoint)

    def stream(
        self,
        messages: Sequence[Message],
        *,
        schema: Schema | None = None,
        answer_tokens: int | None = None,
        timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Reply]:
        """Streams an answer. Entering the block waits for the first text, leaving it closes the connection.

        Args:
            messages: the prompt.
            schema: of the answer; sent if the endpoint supports it.
            answer_tokens: limit; None: the limit of the settings.
            timeout_seconds: seconds for the call; None: the timeout of the settings, which applies in any case.

        Raises:
            LLMError: on entering and while iterating; no other exception is raised.
        """
        from services.llm.call import LLMCall  # noqa: PLC0415  # imports the openai package, as `open` does

        request = ChatRequest(tuple(messages), schema, answer_tokens or self.answer_tokens)
        return LLMCall(self._endpoint, request, timeout_seconds)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Schema | None = None,
        answer_tokens: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Reply:
        """Returns the complete answer, in `Reply.text`. The arguments are those of `stream`.

        Raises:
            LLMError: no complete answer.
        """
        call = self.stream(messages, schema=schema, answer_tokens=answer_tokens, timeout_seconds=timeout_seconds)
        async with call as reply:
            async for _ in reply:
                pass
        return reply

    async def models(self) -> list[str]:
        """Lists the model names of the endpoint.

        Raises:
            LLMError: the endpoint does not list its models.
        """
        return await self._endpoint.connection.models()

    def record_answer(self, *, valid: bool) -> None:
        """Reports whether the last answer was valid; consecutive invalid answers open the circuit breaker."""
        self._endpoint.state.breaker.record_answer(valid=valid)

    def count_tokens(self, text: str) -> int:
        """Estimates the tokens of a text, rather too high than too low, calibrated by the counts of the endpoint."""
        return self._endpoint.state.estimator.tokens(text)
