"""One request to an endpoint, and its answer as it comes in; with failures, all that knows the openai package."""

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
from services.llm.endpoint_capabilities import Ask, Dialect, refusal
from services.llm.llm_error import Unusable
from services.llm.settings import LlmSettings
from services.llm.stream_chunk import said
from services.llm.text import whole
from services.llm.timeouts import Patience

CONNECT_SECONDS = 5.0
"""All other limits are Patience's."""

AFTER_END_SECONDS = 2.0
"""How long the count of tokens is waited for once the answer is whole."""

_NONSENSE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading JSON of any shape as an answer may raise: the openai package checks no types."""


_BROKEN = {"error", "abort"}
"""Why some servers say an answer ends that they could not finish."""

_HALF = re.compile("[\ud800-\udbff]")
"""The first half of a character."""


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
        self._half = ""
        """Of a character whose other half is in the next chunk."""
        self._ahead: str | None = None

    async def begin(self) -> None:
        """Waits for the first text.

        Raises:
            Unusable: none came.
            APIError: an error came in place of it.
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
                if self.finish:
                    continue  # the answer is whole
                raise errors.gibberish(self.model) from None
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
            if isinstance(error, Unusable) or (_is_an_event(error) and not self.heard):
                raise
            lost = isinstance(error, APIError)
            raise errors.broken_off(self.model) if lost else errors.gibberish(self.model) from None

    def _taken(self, chunk: ChatCompletionChunk) -> str:
        """The text of a chunk, after taking note of all else in it."""
        news = said(chunk)
        self.model = news.model or self.model
        self.reported = news.tokens or self.reported
        self.finish = news.finish or self.finish
        if news.alive:
            self._patience.heard()
        text = self._half + news.text
        self._half = text[-1:] if _HALF.match(text[-1:]) else ""
        return whole(text.removesuffix(self._half))

    def _check_end(self) -> None:
        if self.finish in _BROKEN:
            raise errors.broken_off(self.model)
        if self.finish is None:
            raise errors.broken_off(self.model) if self._chunks else errors.gibberish(self.model)
        if self.finish.startswith("content_filter"):
            raise errors.withheld(self.model)
        if not self.heard:
            raise errors.silent(self.model, cut=self.finish == "length")


class Connection:
    """An endpoint as one role has it open; nothing is sent before it is asked."""

    def __init__(self, client: AsyncOpenAI, settings: LlmSettings) -> None:
        self._client = client
        self._settings = settings

    async def ask(self, ask: Ask, dialect: Dialect, patience: Patience) -> Exchange:
        """An answer that begins; a parameter that the endpoint refuses and can do without is left out from then on.

        Raises:
            Unusable: there is no answer to read.
        """
        keep = {"response_format"} if self._settings.json_schema == "on" else set[str]()
        refused = list[str]()
        while True:
            parameters = dialect.parameters(self._settings, ask, without=refused)
            try:
                exchange = await self._begun(parameters, patience)
            except APIError as error:
                name = refusal(error.body, parameters.keys() - keep) if _is_about_parameters(error) else None
                if name is None:
                    raise errors.from_openai(error, self._settings.model) from None
                refused.append(name)
            else:
                dialect.give_up(refused, self._settings.model)
                return exchange

    async def models(self, patience: Patience) -> list[str]:
        """What the endpoint lists.

        Raises:
            Unusable: it lists nothing.
        """
        try:
            async with patience.waiting():
                return [str(model.id) async for model in self._client.models.list()]
        except APIError as error:
            raise errors.from_openai(error, self._settings.model) from None
        except _NONSENSE:
            raise errors.gibberish(self._settings.model) from None

    async def _begun(self, parameters: dict[str, Any], patience: Patience) -> Exchange:
        async with patience.waiting():
            stream = await self._client.chat.completions.create(**parameters)
        exchange = Exchange(stream, patience, self._settings.model)
        try:
            await exchange.begin()
        except BaseException:
            await exchange.close()
            raise
        return exchange


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
    status = error.status_code if isinstance(error, APIStatusError) else HTTPStatus.BAD_REQUEST
    refused = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
    return status in refused and not errors.is_too_long(error)


def _is_an_event(error: Exception) -> bool:
    """Whether it is an error that stands in the stream itself: some servers begin to answer before they look."""
    return isinstance(error, APIError) and not isinstance(error, APIConnectionError | APIStatusError)
