"""HTTP connection to an endpoint: sends requests through the openai package."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from openai import APIError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient, Omit, Timeout

from services.llm import openai_errors
from services.llm.endpoint_capabilities import ChatRequest, EndpointCapabilities, refused_parameter
from services.llm.settings import LlmSettings
from services.llm.streaming import INVALID_JSON_ERRORS, AnswerStream
from services.llm.timeouts import CallTimeouts

CONNECT_SECONDS = 5.0
"""Timeout of connecting; all other timeouts are those of CallTimeouts."""


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
                    raise openai_errors.from_openai(error, self._settings.model) from None
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
            raise openai_errors.from_openai(error, self._settings.model) from None
        except INVALID_JSON_ERRORS:
            raise openai_errors.protocol_error(self._settings.model) from None

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
    return status in refused and not openai_errors.is_too_long(error)
