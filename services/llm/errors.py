"""The error of LLM calls."""

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
