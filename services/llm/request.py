"""One HTTP request to an endpoint and its streamed answer; with `errors`, the only user of the openai package."""

import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    Omit,
    Timeout,
)
from openai.types.chat import ChatCompletionChunk

from services.llm import errors
from services.llm.endpoint_capabilities import ChatRequest, EndpointCapabilities, refused_parameter
from services.llm.llm_error import LLMError
from services.llm.settings import LlmSettings
from services.llm.stream_chunk import parse_chunk
from services.llm.text import replace_surrogates
from services.llm.timeouts import CallTimeouts

CONNECT_SECONDS = 5.0
"""Timeout of connecting; all other timeouts are those of CallTimeouts."""

USAGE_WAIT_SECONDS = 2.0
"""How long to wait for the token counts after the end of the answer."""

_INVALID_JSON_ERRORS = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Raised when reading JSON of unexpected shape: the openai package does not check types."""

_FAILED_FINISH_REASONS = {"error", "abort"}
"""Finish reasons of servers that could not complete the answer."""

_HIGH_SURROGATE = re.compile("[\ud800-\udbff]")
"""First half of a surrogate pair."""


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
            except _INVALID_JSON_ERRORS:
                if self.finish:
                    continue  # the answer is complete
                raise errors.protocol_error(self.model) from None
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
        except (LLMError, APIError, *_INVALID_JSON_ERRORS) as error:
            if self.finish:
                return None  # the answer is complete, only the token counts are missing
            if isinstance(error, LLMError) or (_is_stream_event(error) and not self.has_text):
                raise
            is_disconnected = isinstance(error, APIError)
            raise errors.truncated(self.model) if is_disconnected else errors.protocol_error(self.model) from None

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
            raise errors.truncated(self.model)
        if self.finish is None:
            raise errors.truncated(self.model) if self._chunks else errors.protocol_error(self.model)
        if self.finish.startswith("content_filter"):
            raise errors.content_filtered(self.model)
        if not self.has_text:
            raise errors.empty_answer(self.model, truncated=self.finish == "length")


class Connection:
    """HTTP client of one role for one endpoint."""

    def __init__(self, client: AsyncOpenAI, settings: LlmSettings) -> None:
        self._client = client
        self._settings = settings

    async def send(
        self, request: ChatRequest, capabilities: EndpointCapabilities, timeouts: CallTimeouts
    ) -> AnswerStream:
        """Sends a request and waits for the first text; repeats it without optional parameters that are refused.

        Raises:
            LLMError: no text arrived.
        """
        required = {"response_format"} if self._settings.json_schema == "on" else set[str]()
        refused = list[str]()
        while True:
            parameters = capabilities.parameters(self._settings, request, without=refused)
            try:
                answer = await self._open_stream(parameters, timeouts)
            except APIError as error:
                optional = parameters.keys() - required
                name = refused_parameter(error.body, optional) if _is_about_parameters(error) else None
                if name is None:
                    raise errors.from_openai(error, self._settings.model) from None
                refused.append(name)
            else:
                capabilities.disable(refused, self._settings.model)
                return answer

    async def models(self, timeouts: CallTimeouts) -> list[str]:
        """Lists the model names of the endpoint.

        Raises:
            LLMError: the endpoint does not list its models.
        """
        try:
            async with timeouts.limit_wait():
                return [str(model.id) async for model in self._client.models.list()]
        except APIError as error:
            raise errors.from_openai(error, self._settings.model) from None
        except _INVALID_JSON_ERRORS:
            raise errors.protocol_error(self._settings.model) from None

    async def _open_stream(self, parameters: dict[str, Any], timeouts: CallTimeouts) -> AnswerStream:
        async with timeouts.limit_wait():
            stream = await self._client.chat.completions.create(**parameters)
        answer = AnswerStream(stream, timeouts, self._settings.model)
        try:
            await answer.read_first()
        except BaseException:
            await answer.close()
            raise
        return answer


@asynccontextmanager
async def open_connection(settings: LlmSettings) -> AsyncIterator[Connection]:
    """Opens a connection for the block.

    Redirects are not followed and internal endpoints are not called through a proxy: both could send data outside.
    """
    logging.getLogger("httpx2").setLevel(
        logging.WARNING
    )  # it logs every request, which `tracing` does with more fields
    direct = {"http://": None, "https://": None} if settings.internal else None
    http = DefaultAsyncHttpxClient(
        timeout=Timeout(None, connect=CONNECT_SECONDS), follow_redirects=False, mounts=direct
    )
    async with AsyncOpenAI(
        base_url=settings.base_url,
        api_key=settings.api_key.get_secret_value() or "none",
        default_headers={"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()},  # type: ignore[dict-item]  # as the openai package does
        max_retries=0,
        http_client=http,
    ) as client:
        yield Connection(client, settings)


def _is_about_parameters(error: APIError) -> bool:
    status = error.status_code if isinstance(error, APIStatusError) else HTTPStatus.BAD_REQUEST
    refused = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
    return status in refused and not errors.is_too_long(error)


def _is_stream_event(error: Exception) -> bool:
    """Whether the error was sent inside the stream: some servers start a response before they check the request."""
    return isinstance(error, APIError) and not isinstance(error, APIConnectionError | APIStatusError)
