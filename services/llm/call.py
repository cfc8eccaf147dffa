"""One LLM call: data policy, circuit breaker, concurrency slot, retries with backoff, usage and tracing."""

import json
import time
from contextlib import AsyncExitStack
from types import TracebackType

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)
from tenacity.wait import wait_base

from services.common import call_context
from services.llm.client import Reply, Usage
from services.llm.endpoint import ModelEndpoint
from services.llm.endpoint_capabilities import ChatRequest
from services.llm.errors import LLMError, LLMErrorReason
from services.llm.streaming import AnswerStream, CallTimeouts
from services.llm.tracing import Trace

MAX_RETRY_PAUSE_SECONDS = 8.0


class LLMCall:
    """Context manager of a call: entering waits for the first text, leaving closes the stream and records usage."""

    def __init__(self, endpoint: ModelEndpoint, request: ChatRequest, timeout_seconds: float | None) -> None:
        self._endpoint = endpoint
        self._request = request
        self._timeout_seconds = timeout_seconds
        self._resources = AsyncExitStack()
        self._answer: AnswerStream | None = None
        self._busy = 0.0

    async def __aenter__(self) -> Reply:
        self._check_allowed()
        self._started = time.monotonic()
        self._timeouts = CallTimeouts(self._endpoint.settings, self._timeout_seconds)
        self._trace = Trace(self._endpoint.settings, self._endpoint.role, self._request)
        try:
            answer: AnswerStream = await self._retrying()(self._attempt)
        except BaseException as error:
            self._finish(error)
            raise
        self._answer, self._reply = answer, Reply(answer, self._usage)
        self._trace.first_text(time.monotonic() - self._started)
        return self._reply

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._resources.aclose()
        finally:
            self._finish(error)

    def _check_allowed(self) -> None:
        settings = self._endpoint.settings
        if not settings.internal and not call_context.allows_external_endpoints():
            raise LLMError(
                LLMErrorReason.POLICY,
                f"the data policy of this request does not allow the external LLM {settings.model}",
                remedy="if its endpoint belongs to the deployment, set LLM_INTERNAL=true",
            )
        if not self._endpoint.state.breaker.try_start_call():
            raise self._circuit_open_error()

    def _circuit_open_error(self) -> LLMError:
        breaker, model = self._endpoint.state.breaker, self._endpoint.settings.model
        return LLMError(
            LLMErrorReason.OPEN,
            f"calls to the LLM {model} are paused for {breaker.seconds_until_probe():.0f} s: {breaker.reason}",
            remedy="fix the cause; the LLM is called again automatically",
            counts_against_endpoint=False,
        )

    def _retrying(self) -> AsyncRetrying:
        settings = self._endpoint.settings
        backoff = wait_random_exponential(multiplier=settings.retry_seconds, max=MAX_RETRY_PAUSE_SECONDS)
        return AsyncRetrying(
            retry=retry_if_exception(_is_retryable),
            wait=_WaitAtLeastRetryAfter(backoff),
            stop=stop_after_attempt(settings.attempts) | stop_before_delay(self._timeouts.remaining),
            before_sleep=self._record_failed_attempt,
            reraise=True,
        )

    def _record_failed_attempt(self, state: RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        if isinstance(error, LLMError):
            self._trace.attempt_failed(error, state.upcoming_sleep)

    async def _attempt(self) -> AnswerStream:
        """Sends one request in a concurrency slot; the slot and the stream are released unless text arrives."""
        async with AsyncExitStack() as stack:
            async with self._timeouts.limit_queueing():
                await stack.enter_async_context(self._endpoint.slots)
            if self._endpoint.state.breaker.is_open:
                raise self._circuit_open_error()
            self._timeouts.record_progress()
            sent = time.monotonic()
            try:
                capabilities = self._endpoint.state.capabilities
                answer = await self._endpoint.connection.send(self._request, capabilities, self._timeouts)
            except BaseException:
                self._busy += time.monotonic() - sent
                raise
            answer.sent_at = sent
            stack.push_async_callback(answer.close)
            self._resources = stack.pop_all()
            return answer

    def _usage(self, text: str) -> Usage:
        settings, estimator, answer = self._endpoint.settings, self._endpoint.state.estimator, self._answer
        now = (answer and answer.ended_at) or time.monotonic()
        reported = answer.reported_tokens if answer else None
        input_tokens, output_tokens = reported or (
            estimator.prompt(self._request.messages),
            estimator.tokens(text),
        )
        price = settings.prices.get(settings.model)
        return Usage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cost=price.cost(input_tokens, output_tokens) if price else 0.0,
            busy_seconds=self._busy + (now - answer.sent_at if answer else 0.0),
            elapsed_seconds=now - self._started,
        )

    def _finish(self, error: BaseException | None) -> None:
        state, answer = self._endpoint.state, self._answer
        if isinstance(error, LLMError) and error.counts_against_endpoint:
            state.breaker.record_failure(str(error))
        elif answer:
            state.breaker.record_success()
        else:
            state.breaker.record_inconclusive()
        if answer:
            self._trace.answered(answer.model, answer.finish, self._usage(self._reply.text))
            self._calibrate(answer)
        self._trace.ended(error)

    def _calibrate(self, answer: AnswerStream) -> None:
        has_images = any(message.images for message in self._request.messages)  # their tokens are a guess
        if answer.reported_tokens and answer.reported_tokens[0] > 0 and not has_images:
            schema = json.dumps(dict(self._request.schema.json_schema)) if self._request.schema else ""
            self._endpoint.state.estimator.calibrate(self._request.messages, answer.reported_tokens[0], schema=schema)


class _WaitAtLeastRetryAfter(wait_base):
    """Waits as long as the endpoint requests, but no shorter than the backoff."""

    def __init__(self, backoff: wait_base) -> None:
        self._backoff = backoff

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome and retry_state.outcome.exception()
        requested = error.retry_after_seconds if isinstance(error, LLMError) else 0.0
        return max(self._backoff(retry_state), requested)


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, LLMError) and error.retryable
