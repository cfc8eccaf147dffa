"""Waits until a candidate can be called: for its start, its recovery, its Retry-After, or a permit."""

import asyncio
import math
from datetime import timedelta

from services.common.errors import DeadlineExceeded, Overloaded
from services.orchestrator.experts.candidates import MORE_TIME, CandidateAttempts, CandidateUnavailable
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.health import ExpertHealth
from services.orchestrator.experts.limiter import ConcurrencyLimiter

DEFAULT_START_SECONDS = 180.0
"""Assumed start time of an expert whose start was never measured."""

REPORT_WAIT_AFTER_SECONDS = 0.5
"""A wait for a permit is reported after this time."""


class CandidateWaiter:
    """Waits, on behalf of each task, until its current candidate can be called.

    Args:
        health: of the experts.
        limiter: grants permits for calls.
        catalogue: reports when a dormant expert has started.
    """

    def __init__(self, health: ExpertHealth, limiter: ConcurrencyLimiter, catalogue: CatalogueWatcher) -> None:
        self._health, self._limiter, self._catalogue = health, limiter, catalogue

    async def acquire_address(self, current: CandidateAttempts) -> str:
        """Waits for an address that can be called and for a permit, which is held until release().

        Raises:
            CandidateUnavailable: the candidate cannot be called before the time ends.
            Overloaded: its Retry-After ends after the time that is left.
            DeadlineExceeded: no time is left.
        """
        current.address = ""
        if current.delay is None:
            await self._wait_for_retry_after(current)
        elif not self._health.seconds_left(current.selected):
            await asyncio.sleep(current.delay)
        while True:
            if not current.selected.endpoints:
                await self._wait_for_start(current)
            elif self._health.seconds_left(current.selected):
                await self._wait_for_recovery(current)
            else:
                await self._acquire_permit(current)
                if address := self._health.choose_address(current.selected, current.excluded):
                    return address
                self.release(current)

    def release(self, current: CandidateAttempts) -> None:
        """Returns the permit after a call."""
        self._limiter.release(current.permit)

    async def _wait_for_retry_after(self, current: CandidateAttempts) -> None:
        """Waits until the Retry-After of an earlier refusal ends."""
        if current.attempts.seconds_left <= 0:
            message = f"no time is left for task {current.attempts.task.task_id}"
            raise DeadlineExceeded(message, remedy="give the run more time (budget.wall_time)")
        seconds, refused_until = current.history.seconds_refused(), current.history.refused_until
        if not seconds or refused_until is None:
            return
        expert = current.expert
        if seconds >= min(current.deadline.left, refused_until.left):
            message = f"expert {expert} is overloaded; it accepts calls again in {math.ceil(seconds)} s"
            raise Overloaded(message, remedy="try again later", retry_after=timedelta(seconds=seconds))
        current.attempts.report_waiting(expert, f"{expert} is overloaded; it is called again in {math.ceil(seconds)} s")
        await asyncio.sleep(seconds)

    async def _acquire_permit(self, current: CandidateAttempts) -> None:
        if self._limiter.try_acquire(current.permit):
            return
        expert = current.expert
        reason = f"the limit of concurrent calls of {expert}, or of this run, is reached"
        loop = asyncio.get_running_loop()
        notice = loop.call_later(REPORT_WAIT_AFTER_SECONDS, current.attempts.report_waiting, expert, reason)
        try:
            async with asyncio.timeout(current.deadline.left):
                await self._limiter.acquire(current.permit)
        except TimeoutError:
            message = f"the deadline passed before {expert} could be called"
            raise DeadlineExceeded(message, remedy=MORE_TIME) from None
        finally:
            notice.cancel()

    async def _wait_for_recovery(self, current: CandidateAttempts) -> None:
        """Waits until a circuit changes, or until the next probe of the candidate."""
        seconds, reason = self._health.seconds_to_probe(current), self._health.unavailable_reason(current.selected)
        current.attempts.report_waiting(current.expert, f"{reason}; it is probed until it recovers")
        await self._health.wait_for_change(seconds)
        if self._health.all_addresses_down(current.selected):
            await current.refresh()

    async def _wait_for_start(self, current: CandidateAttempts) -> None:
        """Waits until a dormant expert has an address."""
        candidate, expert, attempts = current.candidate, current.expert, current.attempts
        if not candidate.dormant:
            remedy = "start the expert, or try again later"
            raise CandidateUnavailable(f"expert {expert} has no address", remedy=remedy)
        start = candidate.start_duration.ToTimedelta().total_seconds() or DEFAULT_START_SECONDS
        if start > attempts.seconds_left:
            message = f"expert {expert} is dormant and takes about {start:.0f} s to start, longer than the time left"
            raise _dormant(message, remedy=f"start {expert} first, or {MORE_TIME}")
        start_duration = candidate.start_duration if candidate.HasField("start_duration") else None
        attempts.report_waiting(expert, f"{expert} is dormant; it takes about {start:.0f} s to start", start_duration)
        try:
            async with asyncio.timeout(max(current.deadline.left, min(start, attempts.seconds_left))):
                await self._wait_for_address(current)
        except TimeoutError:
            raise _dormant(
                f"expert {expert} did not start in time", remedy=f"see why {expert} does not start"
            ) from None

    async def _wait_for_address(self, current: CandidateAttempts) -> None:
        with self._catalogue.watched() as changed:
            while not current.selected.endpoints:
                version = changed.version
                await current.refresh()
                if not current.selected.endpoints:
                    await changed.wait(version)


def _dormant(message: str, remedy: str) -> CandidateUnavailable:
    return CandidateUnavailable(message, reason="EXPERT_DORMANT", remedy=remedy)
