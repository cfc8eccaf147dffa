"""Maps failures of an endpoint to LLMError; messages contain no content, API key or address."""

import re
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import Any

from openai import APIConnectionError, APIError, APIStatusError

from services.llm.errors import LLMError, LLMErrorReason

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|too long|max_new_tokens|exceed\w* (the )?context", re.IGNORECASE
)
_NO_CREDIT = re.compile(r"insufficient_quota|billing", re.IGNORECASE)


def from_openai(error: APIError, model: str) -> LLMError:
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
    return _too_long(model) if is_too_long(error) else truncated(model)


def truncated(model: str) -> LLMError:
    """The stream ended before the answer was complete."""
    return LLMError(
        LLMErrorReason.BROKEN,
        f"the LLM {model} ended its answer too early",
        remedy="see the log of its server",
        retryable=True,
    )


def protocol_error(model: str) -> LLMError:
    """The response is not a chat completion."""
    return LLMError(
        LLMErrorReason.BROKEN,
        f"the response of the LLM {model} does not follow the chat completions protocol",
        remedy="set LLM_BASE_URL to an OpenAI-compatible server; the path usually ends with /v1",
        retryable=True,
    )


def empty_answer(model: str, *, truncated: bool) -> LLMError:
    """The answer contains no text.

    Args:
        model: its name.
        truncated: the answer reached its token limit.
    """
    raise_limit = "raise LLM_ANSWER_TOKENS: the model may use tokens for reasoning before it answers"
    check_server = "check that its server supports LLM_CONTEXT_TOKENS, or try another model"
    return LLMError(
        LLMErrorReason.BROKEN,
        f"the LLM {model} answered without text" + (" within its token limit" if truncated else ""),
        remedy=raise_limit if truncated else check_server,
        counts_against_endpoint=False,
    )


def content_filtered(model: str) -> LLMError:
    """A content filter of the endpoint stopped the answer."""
    return LLMError(
        LLMErrorReason.REFUSED,
        f"the content filter of the LLM {model} withheld its answer",
        counts_against_endpoint=False,
    )


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
    if is_too_long(error):
        return _too_long(model)
    return LLMError(
        LLMErrorReason.REFUSED,
        f"the LLM {model} refuses the request with HTTP status {status}",
        counts_against_endpoint=False,
    )


def _too_long(model: str) -> LLMError:
    return LLMError(
        LLMErrorReason.REFUSED,
        f"the prompt is too long for the LLM {model}",
        remedy="set LLM_CONTEXT_TOKENS to the limit of its server, or raise the limit there",
        counts_against_endpoint=False,
    )


def is_too_long(error: APIError) -> bool:
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
