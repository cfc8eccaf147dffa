"""How long a call waits: for the next sign of life, and in all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.llm.llm_error import Unusable, Why
from services.llm.settings import LlmSettings


class Patience:
    """The limits of one call, from now on.

    Args:
        settings: the limits.
        within: seconds the caller has left; None: as many as it takes.
    """

    def __init__(self, settings: LlmSettings, within: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._model = settings.model
        self._silence = settings.first_token_seconds
        self._whole = settings.timeout_seconds
        self._seconds = self._whole if within is None else min(self._whole, within)
        self._deadline = self._loop.time() + self._seconds
        self._quiet_since = self._loop.time()

    @property
    def left(self) -> float:
        """Seconds until the call must be over."""
        return self._deadline - self._loop.time()

    def heard(self) -> None:
        """A sign of life: silence counts anew."""
        self._quiet_since = self._loop.time()

    @asynccontextmanager
    async def waiting(self, *, at_most: float | None = None) -> AsyncIterator[None]:
        """Waits for the endpoint within the block.

        Raises:
            Unusable: SLOW.
        """
        silence_ends = self._quiet_since + (self._silence if at_most is None else at_most)
        try:
            async with asyncio.timeout_at(min(silence_ends, self._deadline)):
                yield
        except TimeoutError:
            raise self._too_slow() if silence_ends < self._deadline else self.over() from None

    @asynccontextmanager
    async def queueing(self) -> AsyncIterator[None]:
        """Waits for a turn within the block.

        Raises:
            Unusable: SLOW, and the endpoint is not to blame.
        """
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
        except TimeoutError:
            raise Unusable(
                Why.SLOW,
                f"the LLM {self._model} was busy with other requests for {self._seconds:.3g} s",
                remedy="raise LLM_CONCURRENCY if its server can do more",
                blames=False,
            ) from None

    def over(self) -> Unusable:
        """The call's time is over; a caller in more of a hurry than the settings says nothing about the endpoint."""
        return Unusable(
            Why.SLOW,
            f"the LLM {self._model} did not finish within {self._seconds:.3g} s",
            remedy="raise LLM_TIMEOUT_SECONDS, or take a faster model",
            blames=self._seconds >= self._whole,
        )

    def _too_slow(self) -> Unusable:
        return Unusable(
            Why.SLOW,
            f"the LLM {self._model} said nothing for {self._silence:.3g} s",
            remedy="raise LLM_FIRST_TOKEN_SECONDS, or take a faster model",
        )
