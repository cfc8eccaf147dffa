"""A model at an endpoint: its HTTP connection, and the state that all roles of a process share."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import Any, Generic, TypeVar

from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    Omit,
    Timeout,
)

from services.llm.circuit_breaker import CircuitBreaker
from services.llm.endpoint_capabilities import ChatRequest, EndpointCapabilities, refused_parameter
from services.llm.errors import LLMError, LLMErrorReason, prompt_too_long, protocol_error, truncated_answer
from services.llm.settings import LlmSettings
from services.llm.streaming import INVALID_JSON_ERRORS, AnswerStream, CallTimeouts
from services.llm.token_budget import TokenEstimator

T = TypeVar("T")

CONNECT_SECONDS = 5.0
"""Timeout of connecting; all other timeouts are those of CallTimeouts."""

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|too long|max_new_tokens|exceed\w* (the )?context", re.IGNORECASE
)
_NO_CREDIT = re.compile(r"insufficient_quota|billing", re.IGNORECASE)


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
                    raise _to_llm_error(error, self._settings.model) from None
                refused.append(name)
            else:
                is_own = not (request.schema and request.schema.is_from_client)
                capabilities.disable(
                    [name for name in refused if is_own or name != "response_format"], self._settings.model
                )
                return answer

    async def models(self) -> list[str]:
        """Lists the model names of the endpoint.

        Raises:
            LLMError: the endpoint does not list its models.
        """
        try:
            async with CallTimeouts(self._settings, None).limit_wait():
                return [str(model.id) async for model in self._client.models.list()]
        except APIError as error:
            raise _to_llm_error(error, self._settings.model) from None
        except INVALID_JSON_ERRORS:
            raise protocol_error(self._settings.model) from None

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


class ReferenceCounted(Generic[T]):
    """Objects by key, each created for its first user and dropped after its last."""

    def __init__(self) -> None:
        self._objects: dict[Hashable, T] = {}
        self._users: dict[Hashable, int] = {}

    @contextmanager
    def acquire(self, key: Hashable, make: Callable[[], T]) -> Iterator[T]:
        """Provides the object of the key for the block."""
        if key not in self._objects:
            self._objects[key] = make()
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield self._objects[key]
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._objects[key], self._users[key]


@dataclass
class ModelState:
    """State of one model at one endpoint."""

    breaker: CircuitBreaker
    capabilities: EndpointCapabilities = field(default_factory=EndpointCapabilities)
    estimator: TokenEstimator = field(default_factory=TokenEstimator)


@dataclass(frozen=True)
class ModelEndpoint:
    """A model at an endpoint, opened by one role."""

    settings: LlmSettings
    role: str
    connection: Connection
    slots: asyncio.Semaphore
    state: ModelState


@asynccontextmanager
async def open_endpoint(settings: LlmSettings, role: str, clock: Callable[[], float]) -> AsyncIterator[ModelEndpoint]:
    """Opens a model at an endpoint for the block; sends no request.

    Args:
        settings: must have a base_url.
        role: of the caller, for metrics and traces.
        clock: of the circuit breaker; the first role that opens the model sets it.
    """
    with _shared_state(settings, clock) as (slots, state):
        async with _open_connection(settings) as connection:
            yield ModelEndpoint(settings, role, connection, slots, state)


_SLOTS = ReferenceCounted[asyncio.Semaphore]()
_STATES = ReferenceCounted[ModelState]()


@contextmanager
def _shared_state(settings: LlmSettings, clock: Callable[[], float]) -> Iterator[tuple[asyncio.Semaphore, ModelState]]:
    """Provides the concurrency slots of the endpoint and the state of the model for the block."""
    loop = asyncio.get_running_loop()  # slots belong to one loop, and the breaker to its clock
    with (
        _SLOTS.acquire((loop, settings.base_url), lambda: asyncio.Semaphore(settings.concurrency)) as slots,
        _STATES.acquire((loop, settings.base_url, settings.model), lambda: ModelState(CircuitBreaker(clock))) as state,
    ):
        yield slots, state


@asynccontextmanager
async def _open_connection(settings: LlmSettings) -> AsyncIterator[Connection]:
    """Opens a connection for the block.

    Redirects are not followed and internal endpoints are not called through a proxy: both could send data outside.
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # logs every request; `tracing` does so with more fields
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


# ---------------------------------------------------------------- errors of the openai package


def _to_llm_error(error: APIError, model: str) -> LLMError:
    """Converts an error of the openai package."""
    if isinstance(error, APIStatusError):
        return _from_status(error, model)
    if isinstance(error, APIConnectionError):
        return LLMError(
            LLMErrorReason.DOWN,
            f"the LLM {model} cannot be reached",
            remedy="check that its server runs and that LLM_BASE_URL is its address",
            retryable=True,
        )
    return prompt_too_long(model) if _is_too_long(error) else truncated_answer(model)


def _from_status(error: APIStatusError, model: str) -> LLMError:
    status = error.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return LLMError(
            LLMErrorReason.RATE_LIMITED,
            f"the LLM {model} is rate limited",
            remedy="lower LLM_CONCURRENCY, or get a higher limit or more credit from its provider",
            retryable=not _NO_CREDIT.search(str(error.body)),
            retry_after_seconds=_retry_after(error.response.headers),
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
        return LLMError(
            LLMErrorReason.DOWN,
            f"the LLM {model} fails with HTTP status {status}",
            remedy="see the log of its server",
            retryable=True,
            retry_after_seconds=_retry_after(error.response.headers),
        )
    return _from_client_error(error, model)


def _from_client_error(error: APIStatusError, model: str) -> LLMError:
    status = error.status_code
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return LLMError(
            LLMErrorReason.REFUSED, f"the LLM {model} refuses the key", remedy="set LLM_API_KEY to a valid key"
        )
    if status == HTTPStatus.NOT_FOUND:
        return LLMError(
            LLMErrorReason.REFUSED,
            f"the LLM {model} does not exist at its endpoint",
            remedy="set LLM_MODEL to a model of the endpoint, and LLM_BASE_URL to the complete URL, usually with /v1",
        )
    if status < HTTPStatus.BAD_REQUEST:
        return LLMError(
            LLMErrorReason.REFUSED,
            f"the endpoint of the LLM {model} redirects requests, and redirects are not followed",
            remedy="set LLM_BASE_URL to the new address",
        )
    if _is_too_long(error):
        return prompt_too_long(model)
    return LLMError(
        LLMErrorReason.REFUSED,
        f"the LLM {model} refuses the request with HTTP status {status}",
        counts_against_endpoint=False,
    )


def _is_too_long(error: APIError) -> bool:
    """Whether the endpoint reports that the prompt is too long."""
    return error.code == "context_length_exceeded" or bool(_TOO_LONG.search(str(error.body)))


def _retry_after(headers: Any) -> float:
    """Returns the seconds of a Retry-After header, which holds seconds or a date; 0 if it is missing or invalid."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(headers["retry-after-ms"]) / 1000 if "retry-after-ms" in headers else float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return 0.0


def _is_about_parameters(error: APIError) -> bool:
    status = error.status_code if isinstance(error, APIStatusError) else HTTPStatus.BAD_REQUEST
    refused = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
    return status in refused and not _is_too_long(error)
