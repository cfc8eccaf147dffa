"""Timeouts of an LLM call: idle time and total time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.llm.errors import LLMError, LLMErrorReason
from services.llm.settings import LlmSettings


class CallTimeouts:
    """Timeouts of one call; time starts with the object.

    Args:
        settings: the timeouts.
        timeout_seconds: seconds the caller allows; None: the timeout of the settings.
    """

    def __init__(self, settings: LlmSettings, timeout_seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._model = settings.model
        self._idle_seconds = settings.first_token_seconds
        self._limit = settings.timeout_seconds
        self._seconds = self._limit if timeout_seconds is None else min(self._limit, timeout_seconds)
        self._deadline = self._loop.time() + self._seconds
        self._last_progress = self._loop.time()

    @property
    def remaining(self) -> float:
        """Seconds until the deadline of the call."""
        return self._deadline - self._loop.time()

    def record_progress(self) -> None:
        """Restarts the idle timeout."""
        self._last_progress = self._loop.time()

    @asynccontextmanager
    async def limit_wait(self, *, at_most: float | None = None) -> AsyncIterator[None]:
        """Limits a wait for the endpoint by the idle timeout and the deadline.

        Args:
            at_most: idle timeout in seconds; None: that of the settings.

        Raises:
            LLMError: SLOW.
        """
        idle_deadline = self._last_progress + (self._idle_seconds if at_most is None else at_most)
        try:
            async with asyncio.timeout_at(min(idle_deadline, self._deadline)):
                yield
        except TimeoutError:
            raise self._idle_timeout() if idle_deadline < self._deadline else self.deadline_exceeded() from None

    @asynccontextmanager
    async def limit_queueing(self) -> AsyncIterator[None]:
        """Limits the wait for a concurrency slot by the deadline.

        Raises:
            LLMError: SLOW, not counted against the endpoint.
        """
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
        except TimeoutError:
            raise LLMError(
                LLMErrorReason.SLOW,
                f"the LLM {self._model} was busy with other requests for {self._seconds:.3g} s",
                remedy="raise LLM_CONCURRENCY if its server can do more",
                counts_against_endpoint=False,
            ) from None

    def deadline_exceeded(self) -> LLMError:
        """Returns the error of a missed deadline; one shortened by the caller does not count against the endpoint."""
        return LLMError(
            LLMErrorReason.SLOW,
            f"the LLM {self._model} did not finish within {self._seconds:.3g} s",
            remedy="raise LLM_TIMEOUT_SECONDS, or take a faster model",
            counts_against_endpoint=self._seconds >= self._limit,
        )

    def _idle_timeout(self) -> LLMError:
        return LLMError(
            LLMErrorReason.SLOW,
            f"the LLM {self._model} sent nothing for {self._idle_seconds:.3g} s",
            remedy="raise LLM_FIRST_TOKEN_SECONDS, or take a faster model",
        )
