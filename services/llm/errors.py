"""What an endpoint's failures mean: one sentence each, without content, key or address."""

import re
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import Any

from openai import APIConnectionError, APIError, APIStatusError

from services.llm.llm_error import Unusable, Why

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|too long|max_new_tokens|exceed\w* (the )?context", re.IGNORECASE
)
_SPENT = re.compile(r"insufficient_quota|billing", re.IGNORECASE)


def from_openai(error: APIError, model: str) -> Unusable:
    """What a failed request was."""
    if isinstance(error, APIStatusError):
        return _from_status(error, model)
    if isinstance(error, APIConnectionError):
        return Unusable(
            Why.DOWN,
            f"the LLM {model} cannot be reached",
            remedy="see that its server runs and that LLM_BASE_URL leads to it",
            again=True,
        )
    return _too_long(model) if is_too_long(error) else broken_off(model)


def broken_off(model: str) -> Unusable:
    """An answer that ended in the middle."""
    return Unusable(Why.BROKEN, f"the LLM {model} broke off its answer", remedy="see the log of its server", again=True)


def gibberish(model: str) -> Unusable:
    """An answer that is not one."""
    return Unusable(
        Why.BROKEN,
        f"the LLM {model} answers in no form of the chat completions protocol",
        remedy="see that LLM_BASE_URL leads to an OpenAI-compatible server, mostly with /v1 at its end",
        again=True,
    )


def silent(model: str, *, cut: bool) -> Unusable:
    """An answer without text."""
    thinks = "raise LLM_ANSWER_TOKENS: it may think before it answers"
    full = "see that its server has room for LLM_CONTEXT_TOKENS, or try another model"
    return Unusable(
        Why.BROKEN,
        f"the LLM {model} answered with no text" + (" before its limit of tokens" if cut else ""),
        remedy=thinks if cut else full,
        blames=False,
    )


def withheld(model: str) -> Unusable:
    """An answer that the endpoint's filter stopped."""
    return Unusable(Why.REFUSED, f"the provider of the LLM {model} withheld its answer", blames=False)


def _from_status(error: APIStatusError, model: str) -> Unusable:
    status = error.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Unusable(
            Why.RATE_LIMITED,
            f"the LLM {model} takes no more requests for now",
            remedy="lower LLM_CONCURRENCY, or ask its provider for a higher limit or credit",
            again=not _SPENT.search(str(error.body)),
            after=_retry_after(error.response.headers),
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
        return Unusable(
            Why.DOWN,
            f"the LLM {model} fails with HTTP status {status}",
            remedy="see the log of its server",
            again=True,
            after=_retry_after(error.response.headers),
        )
    return _refusal(error, model)


def _refusal(error: APIStatusError, model: str) -> Unusable:
    status = error.status_code
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return Unusable(Why.REFUSED, f"the LLM {model} refuses the key", remedy="set LLM_API_KEY to a key for it")
    if status == HTTPStatus.NOT_FOUND:
        return Unusable(
            Why.REFUSED,
            f"the LLM {model} is not there",
            remedy="set LLM_MODEL to a model of the endpoint, and LLM_BASE_URL to its whole address, mostly with /v1",
        )
    if status < HTTPStatus.BAD_REQUEST:
        return Unusable(
            Why.REFUSED,
            f"the LLM {model} sends its callers elsewhere, and nothing is sent there",
            remedy="set LLM_BASE_URL to the address it moved to",
        )
    if is_too_long(error):
        return _too_long(model)
    return Unusable(Why.REFUSED, f"the LLM {model} refuses the request with HTTP status {status}", blames=False)


def _too_long(model: str) -> Unusable:
    return Unusable(
        Why.REFUSED,
        f"the prompt is too long for the LLM {model}",
        remedy="lower LLM_CONTEXT_TOKENS to what its server takes, or raise it there",
        blames=False,
    )


def is_too_long(error: APIError) -> bool:
    """Whether the endpoint complains about the length of the prompt."""
    return error.code == "context_length_exceeded" or bool(_TOO_LONG.search(str(error.body)))


def _retry_after(headers: Any) -> float:
    """Seconds, of a header that holds seconds or a date; 0 if it is missing or senseless."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(headers["retry-after-ms"]) / 1000 if "retry-after-ms" in headers else float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return 0.0
