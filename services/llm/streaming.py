"""A streamed answer: its chunks, in the variants of known servers, its end, and the timeouts of a call."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai import APIConnectionError, APIError, APIStatusError, AsyncStream
from openai.types.chat import ChatCompletionChunk

from services.llm.errors import (
    LLMError,
    LLMErrorReason,
    content_filtered_answer,
    empty_answer,
    protocol_error,
    truncated_answer,
)
from services.llm.prompt import replace_surrogates
from services.llm.settings import LlmSettings

USAGE_WAIT_SECONDS = 2.0
"""How long to wait for the token counts after the end of the answer."""

INVALID_JSON_ERRORS = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Raised when reading JSON of unexpected shape: the openai package does not check types."""

_FAILED_FINISH_REASONS = {"error", "abort"}
"""Finish reasons of servers that could not complete the answer."""

_HIGH_SURROGATE = re.compile("[\ud800-\udbff]")
"""First half of a surrogate pair."""

MAX_TOKEN_COUNT = 2**31
"""Larger token counts are ignored."""

MAX_MODEL_NAME_LENGTH = 200
"""Longer model names are truncated to this many characters."""

_PROGRESS_FIELDS = ("content", "reasoning_content", "reasoning")


class CallTimeouts:
    """Timeouts of one call; time starts with the object.

    Args:
        settings: the timeouts.
        timeout_seconds: seconds the caller allows; None: the timeout of the settings.
    """

    def __init__(self, settings: LlmSettings, timeout_seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._model = settings.model
        self._idle_seconds = settings.first_token_seconds
        self._limit = settings.timeout_seconds
        self._seconds = self._limit if timeout_seconds is None else min(self._limit, timeout_seconds)
        self._deadline = self._loop.time() + self._seconds
        self._last_progress = self._loop.time()

    @property
    def remaining(self) -> float:
        """Seconds until the deadline of the call."""
        return self._deadline - self._loop.time()

    def record_progress(self) -> None:
        """Restarts the idle timeout."""
        self._last_progress = self._loop.time()

    @asynccontextmanager
    async def limit_wait(self, *, at_most: float | None = None) -> AsyncIterator[None]:
        """Limits a wait for the endpoint by the idle timeout and the deadline.

        Args:
            at_most: idle timeout in seconds; None: that of the settings.

        Raises:
            LLMError: SLOW.
        """
        idle_deadline = self._last_progress + (self._idle_seconds if at_most is None else at_most)
        try:
            async with asyncio.timeout_at(min(idle_deadline, self._deadline)):
                yield
        except TimeoutError:
            raise self._idle_timeout() if idle_deadline < self._deadline else self.deadline_exceeded() from None

    @asynccontextmanager
    async def limit_queueing(self) -> AsyncIterator[None]:
        """Limits the wait for a concurrency slot by the deadline.

        Raises:
            LLMError: SLOW, not counted against the endpoint.
        """
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
        except TimeoutError:
            raise LLMError(
                LLMErrorReason.SLOW,
                f"the LLM {self._model} was busy with other requests for {self._seconds:.3g} s",
                remedy="raise LLM_CONCURRENCY if its server can do more",
                counts_against_endpoint=False,
            ) from None

    def deadline_exceeded(self) -> LLMError:
        """Returns the error of a missed deadline; one shortened by the caller does not count against the endpoint."""
        return LLMError(
            LLMErrorReason.SLOW,
            f"the LLM {self._model} did not finish within {self._seconds:.3g} s",
            remedy="raise LLM_TIMEOUT_SECONDS, or take a faster model",
            counts_against_endpoint=self._seconds >= self._limit,
        )

    def _idle_timeout(self) -> LLMError:
        return LLMError(
            LLMErrorReason.SLOW,
            f"the LLM {self._model} sent nothing for {self._idle_seconds:.3g} s",
            remedy="raise LLM_FIRST_TOKEN_SECONDS, or take a faster model",
        )


class AnswerStream:
    """A streamed answer, from its first text on."""

    def __init__(self, stream: AsyncStream[ChatCompletionChunk], timeouts: CallTimeouts, model: str) -> None:
        self.model = model
        """Name of the answering model, as reported by the endpoint."""
        self.reported_tokens: tuple[int, int] | None = None
        """Tokens of prompt and answer, if the endpoint has reported them."""
        self.finish: str | None = None
        """Finish reason; None until the answer has ended."""
        self.has_text = False
        """Whether any text arrived."""
        self.sent_at = time.monotonic()
        self.ended_at: float | None = None
        self._stream = stream
        self._timeouts = timeouts
        self._chunks = 0
        self._pending_surrogate = ""
        """High surrogate at the end of the last chunk, whose other half is in the next chunk."""
        self._first_text: str | None = None

    async def read_first(self) -> None:
        """Waits for the first text.

        Raises:
            LLMError: no text arrived.
            APIError: the stream contains an error instead of text.
        """
        self._first_text = await self._read()

    async def next_text(self) -> str | None:
        """Returns the next text; None at the end.

        Raises:
            LLMError: the answer ended early or stalled.
        """
        if self._first_text is not None:
            first, self._first_text = self._first_text, None
            return first
        self._timeouts.record_progress()  # the time since the last text was spent by the reader
        return None if self.ended_at else await self._read()

    async def close(self) -> None:
        """Closes the connection."""
        self.ended_at = self.ended_at or time.monotonic()
        await self._stream.close()

    async def _read(self) -> str | None:
        while (chunk := await self._chunk()) is not None:
            self._chunks += 1
            try:
                text = self._process_chunk(chunk)
            except INVALID_JSON_ERRORS:
                if self.finish:
                    continue  # the answer is complete
                raise protocol_error(self.model) from None
            if text:
                self.has_text = True
                return text
        self.ended_at = time.monotonic()
        self._check_finish()
        return None

    async def _chunk(self) -> ChatCompletionChunk | None:
        try:
            async with self._timeouts.limit_wait(at_most=USAGE_WAIT_SECONDS if self.finish else None):
                return await anext(self._stream, None)
        except (LLMError, APIError, *INVALID_JSON_ERRORS) as error:
            if self.finish:
                return None  # the answer is complete, only the token counts are missing
            if isinstance(error, LLMError) or (_is_stream_event(error) and not self.has_text):
                raise
            is_disconnected = isinstance(error, APIError)
            raise (truncated_answer(self.model) if is_disconnected else protocol_error(self.model)) from None

    def _process_chunk(self, chunk: ChatCompletionChunk) -> str:
        """Records the metadata of a chunk and returns its text."""
        content = parse_chunk(chunk)
        self.model = content.model or self.model
        self.reported_tokens = content.tokens or self.reported_tokens
        self.finish = content.finish or self.finish
        if content.has_progress:
            self._timeouts.record_progress()
        text = self._pending_surrogate + content.text
        self._pending_surrogate = text[-1:] if _HIGH_SURROGATE.match(text[-1:]) else ""
        return replace_surrogates(text.removesuffix(self._pending_surrogate))

    def _check_finish(self) -> None:
        if self.finish in _FAILED_FINISH_REASONS:
            raise truncated_answer(self.model)
        if self.finish is None:
            raise truncated_answer(self.model) if self._chunks else protocol_error(self.model)
        if self.finish.startswith("content_filter"):
            raise content_filtered_answer(self.model)
        if not self.has_text:
            raise empty_answer(self.model, truncated=self.finish == "length")


@dataclass(frozen=True, slots=True)
class ChunkContent:
    """Content of one chunk.

    Args:
        text: of the answer, without reasoning.
        model: name of the answering model; empty if missing.
        finish: finish reason; empty if the answer continues.
        has_progress: the chunk contains text or reasoning.
        tokens: of prompt and answer so far; None if missing or invalid.
    """

    text: str
    model: str
    finish: str
    has_progress: bool
    tokens: tuple[int, int] | None


def parse_chunk(chunk: ChatCompletionChunk) -> ChunkContent:
    """Parses a chunk; the openai package does not check its types, so wrong types raise any error of reading them."""
    choice = chunk.choices[0] if chunk.choices else None
    delta = choice.delta.to_dict(warnings=False) if choice and choice.delta else {}
    return ChunkContent(
        text=_text(delta.get("content")),
        model=replace_surrogates(str(chunk.model or ""))[:MAX_MODEL_NAME_LENGTH],
        finish=str(choice.finish_reason or "") if choice else "",
        has_progress=any(delta.get(name) for name in _PROGRESS_FIELDS),
        tokens=_tokens(chunk.usage),
    )


def _text(content: Any) -> str:
    """Returns the text of `content`: a string, or a list of parts, some of which are reasoning."""
    if isinstance(content, list):
        return "".join(_text(part["text"]) for part in content if part["type"] == "text")
    if not isinstance(content, str | None):
        raise TypeError("content must be a string or a list of parts")
    return content or ""


def _tokens(usage: Any) -> tuple[int, int] | None:
    prompt, completion = (_count(getattr(usage, f"{kind}_tokens", None)) for kind in ("prompt", "completion"))
    return None if prompt is None or completion is None else (prompt, completion)


def _count(number: Any) -> int | None:
    return number if isinstance(number, int) and 0 <= number < MAX_TOKEN_COUNT else None


def _is_stream_event(error: Exception) -> bool:
    """Whether the error was sent inside the stream: some servers start a response before they check the request."""
    return isinstance(error, APIError) and not isinstance(error, APIConnectionError | APIStatusError)
