"""The error of LLM calls; messages contain no content, API key or address."""

from enum import Enum


class LLMErrorReason(Enum):
    """Category of an LLM error; its name is the `error.type` of metrics and traces."""

    POLICY = "policy"
    """The data policy of the request does not allow an external endpoint."""
    DOWN = "down"
    """Unreachable, or a server error."""
    SLOW = "slow"
    """No progress within the idle timeout, or not finished within the timeout."""
    RATE_LIMITED = "rate limited"
    REFUSED = "refused"
    """The endpoint refuses the request permanently: invalid key or model name, prompt too long."""
    BROKEN = "broken"
    """The answer is truncated, empty or not a chat completion."""
    OPEN = "open"
    """The circuit breaker is open after consecutive failures."""


class LLMError(Exception):
    """An LLM call gave no usable answer; message and remedy contain no content and no secrets.

    Args:
        reason: category of the error.
        message: a sentence.
        remedy: what the operator can do.
        retryable: a retry of the same request may succeed.
        retry_after_seconds: pause that the endpoint requests before a retry.
        counts_against_endpoint: the endpoint caused the failure, not this request; counted by the circuit breaker.
    """

    def __init__(
        self,
        reason: LLMErrorReason,
        message: str,
        *,
        remedy: str = "",
        retryable: bool = False,
        retry_after_seconds: float = 0.0,
        counts_against_endpoint: bool = True,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.remedy = remedy
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.counts_against_endpoint = counts_against_endpoint


def truncated_answer(model: str) -> LLMError:
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


def content_filtered_answer(model: str) -> LLMError:
    """A content filter of the endpoint stopped the answer."""
    return LLMError(
        LLMErrorReason.REFUSED,
        f"the content filter of the LLM {model} withheld its answer",
        counts_against_endpoint=False,
    )


def prompt_too_long(model: str) -> LLMError:
    """The prompt exceeds the context of the model."""
    return LLMError(
        LLMErrorReason.REFUSED,
        f"the prompt is too long for the LLM {model}",
        remedy="set LLM_CONTEXT_TOKENS to the limit of its server, or raise the limit there",
        counts_against_endpoint=False,
    )
