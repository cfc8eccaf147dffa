"""One request to an endpoint, and its answer as it comes in; with failures, all that knows the openai package."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from openai import APIError, APIStatusError, AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient, Omit, Timeout
from openai.types.chat import ChatCompletionChunk

from services.llm import failures
from services.llm.dialect import Ask, Dialect
from services.llm.patience import Patience
from services.llm.settings import LlmSettings
from services.llm.unusable import Unusable

CONNECT_SECONDS = 5.0
"""All other limits are Patience's."""

AFTER_END_SECONDS = 2.0
"""How long the count of tokens is waited for once the answer is whole."""

_NONSENSE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading JSON of any shape as an answer may raise: the openai package checks no types."""


class Exchange:
    """An answer as it comes in, from its first text on."""

    def __init__(self, stream: AsyncStream[ChatCompletionChunk], patience: Patience, model: str) -> None:
        self.model = model
        """As the endpoint names the one that answered."""
        self.reported: tuple[int, int] | None = None
        """Tokens of prompt and answer, once the endpoint says so."""
        self.finish: str | None = None
        """Why the answer ended, once it has."""
        self.heard = False
        """Text came."""
        self.begun = time.monotonic()
        self.ended: float | None = None
        self._stream = stream
        self._patience = patience
        self._chunks = 0
        self._ahead: str | None = None

    async def begin(self) -> None:
        """Waits for the first text.

        Raises:
            Unusable: none came.
        """
        self._ahead = await self._read()

    async def piece(self) -> str | None:
        """The next text; None at the end.

        Raises:
            Unusable: none came, and the answer is not whole.
        """
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        self._patience.heard()  # until now it was the reader who took time
        return None if self.ended else await self._read()

    async def close(self) -> None:
        """Hangs up."""
        self.ended = self.ended or time.monotonic()
        await self._stream.close()

    async def _read(self) -> str | None:
        while (chunk := await self._chunk()) is not None:
            self._chunks += 1
            try:
                text = self._taken(chunk)
            except _NONSENSE:
                raise failures.gibberish(self.model) from None
            if text:
                self.heard = True
                return text
        self.ended = time.monotonic()
        self._check_end()
        return None

    async def _chunk(self) -> ChatCompletionChunk | None:
        try:
            async with self._patience.waiting(at_most=AFTER_END_SECONDS if self.finish else None):
                return await anext(self._stream, None)
        except (Unusable, APIError, *_NONSENSE) as error:
            if self.finish:
                return None  # the answer is whole: only the count of tokens is missing
            if isinstance(error, Unusable):
                raise
            lost = isinstance(error, APIError)
            raise failures.broken_off(self.model) if lost else failures.gibberish(self.model) from None

    def _taken(self, chunk: ChatCompletionChunk) -> str:
        """The text of a chunk, after taking note of all else in it."""
        self.model = chunk.model or self.model
        if chunk.usage:
            self.reported = int(chunk.usage.prompt_tokens), int(chunk.usage.completion_tokens)
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish = choice.finish_reason or self.finish
        delta = choice.delta.to_dict() if choice.delta else {}
        if any(delta.get(name) for name in ("content", "reasoning_content", "reasoning")):
            self._patience.heard()
        text = delta.get("content") or ""
        if not isinstance(text, str):
            raise TypeError("content is a text")
        return text

    def _check_end(self) -> None:
        if self.finish is None:
            raise failures.broken_off(self.model) if self._chunks else failures.gibberish(self.model)
        if self.finish == "content_filter":
            raise failures.withheld(self.model)
        if not self.heard:
            raise failures.silent(self.model, cut=self.finish == "length")


class Connection:
    """An endpoint as one role has it open; nothing is sent before it is asked."""

    def __init__(self, client: AsyncOpenAI, settings: LlmSettings) -> None:
        self._client = client
        self._settings = settings

    async def ask(self, ask: Ask, dialect: Dialect, patience: Patience) -> Exchange:
        """Sends a request, again as long as the endpoint refuses a parameter that it can do without.

        Raises:
            Unusable: there is no answer to read.
        """
        keep = "response_format" if self._settings.json_schema == "on" else None
        while True:
            parameters = dialect.parameters(self._settings, ask)
            try:
                return await self._sent(parameters, patience)
            except APIError as error:
                if not _is_about_parameters(error) or not dialect.gives_up(parameters, error.body, keep=keep):
                    raise failures.from_openai(error, self._settings.model) from None

    async def models(self, patience: Patience) -> list[str]:
        """What the endpoint lists.

        Raises:
            Unusable: it lists nothing.
        """
        try:
            async with patience.waiting():
                return [str(model.id) async for model in self._client.models.list()]
        except APIError as error:
            raise failures.from_openai(error, self._settings.model) from None
        except _NONSENSE:
            raise failures.gibberish(self._settings.model) from None

    async def _sent(self, parameters: dict[str, Any], patience: Patience) -> Exchange:
        async with patience.waiting():
            stream = await self._client.chat.completions.create(**parameters)
        return Exchange(stream, patience, self._settings.model)


@asynccontextmanager
async def connected(settings: LlmSettings) -> AsyncIterator[Connection]:
    """The endpoint within the block.

    Redirections are not followed, and an internal endpoint is never reached through a proxy: both may lead outside.
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs a line per request; so do we, with more in it
    direct = {"http://": None, "https://": None} if settings.internal else None
    http = DefaultAsyncHttpxClient(
        timeout=Timeout(None, connect=CONNECT_SECONDS), follow_redirects=False, mounts=direct
    )
    async with AsyncOpenAI(
        base_url=settings.base_url,
        api_key=settings.api_key.get_secret_value() or "none",
        default_headers={"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()},  # type: ignore[dict-item]  # what its own client does
        max_retries=0,
        http_client=http,
    ) as client:
        yield Connection(client, settings)


def _is_about_parameters(error: APIError) -> bool:
    refused = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
    return isinstance(error, APIStatusError) and error.status_code in refused and not failures.is_too_long(error)
