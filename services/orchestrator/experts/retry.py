"""One candidate, asked as often as makes sense: when it can be called, and what follows when a call fails."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common import call_context
from services.common.errors import DeadlineExceeded, Overloaded, RecoveryAction, ServiceError, recovery_action
from services.orchestrator.experts.backoff import (
    LONGEST_REFUSAL_WAIT_SECONDS,
    REFUSALS_BEFORE_NEXT,
    RetryBudget,
    backoff,
    refusal_backoff,
    spend,
)
from services.orchestrator.experts.candidates import Asking, OutOfReach, is_refusal, same
from services.orchestrator.experts.dormant import Sleepers
from services.orchestrator.experts.infer_call import Calls
from services.orchestrator.experts.limiter import Turn, Turns

TRIES = 8
"""Most calls of one candidate for one task, those that it refuses as overloaded included."""

BATCH_CALLS = 32
"""The same for an item of a batch if the candidate refuses: items that compete for one expert are refused often, and
nobody waits for a single one of them. A candidate with more addresses than one may refuse once more at each."""

PATIENCE_SECONDS = 10.0
"""How long a task waits at a time for the next probe of an expert that is away, once it has no other."""

USUAL_START_SECONDS = 180.0
"""How long an expert takes to start whose last start nobody has seen."""

NOTICEABLE_SECONDS = 0.5
"""A wait for a turn that is told."""

_MORE_TIME = "give the run more time (budget.wall_time), or ask for less at once"


@dataclass(frozen=True)
class Means:
    """What all who ask share."""

    calls: Calls
    turns: Turns
    sleepers: Sleepers
    attempt_seconds: float
    """The longest call."""
    overload_seconds: float
    """How long a task calls an expert again that refuses calls as overloaded."""


class Trying:
    """A task's calls of one candidate.

    Args:
        means: shared with all other tasks.
        asking: the task.
        candidate: whom to ask.
        retries: those its expert has earned.
        last: there is nobody else to ask.
        patient: it is worth waiting for, should it be away.
        has_alternative: whether another candidate can be called now.

    Raises:
        DeadlineExceeded: there is no time left.
    """

    def __init__(
        self,
        means: Means,
        asking: Asking,
        candidate: Candidate,
        retries: RetryBudget,
        *,
        last: bool,
        patient: bool,
        has_alternative: Callable[[], bool],
    ) -> None:
        self._calls, self._turns, self._sleepers = means.calls, means.turns, means.sleepers
        self._attempt_seconds, self._overload_seconds = means.attempt_seconds, means.overload_seconds
        self._asking, self._candidate = asking, candidate
        self._last, self._patient, self._has_alternative = last, patient, has_alternative
        self._until = asking.until(last=last)
        self._budgets = asking.job.retries, retries
        self._history = asking.history(candidate)
        self._shunned: set[str] = set()
        who = call_context.current()
        self._turn = Turn(candidate.expert, who.tenant, who.run_id, batch=who.priority == PRIORITY_BATCH)

    async def result(self) -> TaskResult:
        """What the candidate answers.

        Raises:
            OutOfReach: it cannot be called, now or soon enough.
            ServiceError: how its last call failed.
        """
        await self._wait_for_retry_after()
        while True:
            address = await self._place()
            try:
                return await self._call(address)
            except ServiceError as error:
                delay = self._pause(error, address)
                if delay is None:
                    raise
                self._asking.failed(error, self._candidate, RecoveryAction.RETRY, delay)
            finally:
                self._turns.give_back(self._turn)
            if self._usable():
                await asyncio.sleep(delay)

    # ------------------------------------------------------------ a call

    async def _call(self, address: str) -> TaskResult:
        self._history.calls += 1
        for budget in self._budgets:
            budget.earn()
        seconds = min(self._attempt_seconds, self._left)
        if seconds <= 0:
            raise self._too_late("was called")
        return await self._calls.make(self._asking, self._candidate, address, seconds)

    def _pause(self, error: ServiceError, address: str) -> float | None:
        """Seconds until the next call, None if there is to be none.

        Raises:
            OutOfReach: none is possible soon enough.
        """
        if recovery_action(error) is not RecoveryAction.RETRY:
            return None
        self._shunned.add(address)
        elsewhere = self._calls.elsewhere(self._candidate, self._shunned)
        named = error.retry_after.total_seconds() if error.retry_after else 0.0
        refused, left = is_refusal(error), self._left
        if refused:
            left = min(left, self._history.refused(0.0 if elsewhere else named, self._overload_seconds))
        if self._is_over(error, 0.0 if elsewhere else named, elsewhere=elsewhere):
            return None
        if not elsewhere and not self._usable():
            return self._seconds_to_probe()
        # A call when the expert said is no more load than it wants, nor is a call elsewhere of what is taken for gone.
        if not ((refused and named) or self._calls.lost(self._candidate, address) or spend(*self._budgets)):
            return None
        if refused and not elsewhere:
            delay = refusal_backoff(self._history.refusals, named, batch=self._turn.batch)
        else:
            delay = backoff(self._history.calls)
            if named and not elsewhere:
                delay = named + min(delay, named)
        return delay if delay < left else None

    def _is_over(self, error: ServiceError, wait: float, *, elsewhere: bool) -> bool:
        """Whether this candidate is called no more.

        Refusals count against the limit of calls. While another candidate can be called now, this one may refuse twice,
        and once if it is to be waited for long.

        Args:
            error: how its last call failed.
            wait: seconds until it accepts calls again by its own account.
            elsewhere: another address of it can be called now.
        """
        history = self._history
        most = (BATCH_CALLS if self._turn.batch else TRIES) + max(0, len(self._candidate.endpoints) - 1)
        if history.calls >= most or history.calls - history.refusals >= TRIES:
            return True
        if isinstance(error, DeadlineExceeded):
            return not (self._last or elsewhere)
        if not is_refusal(error):
            return False
        is_enough = wait > LONGEST_REFUSAL_WAIT_SECONDS or history.refusals >= REFUSALS_BEFORE_NEXT
        return is_enough and self._has_alternative()

    # ------------------------------------------------------------ when it can be called

    async def _wait_for_retry_after(self) -> None:
        """Waits until a candidate that refused calls before accepts them again.

        Raises:
            Overloaded: that is later than there is time.
        """
        seconds, until = self._history.seconds_refused(), self._history.refused_until
        if not seconds or until is None:
            return
        expert = self._candidate.expert
        if seconds >= min(self._left, until.left):
            what = f"expert {expert} is overloaded; it accepts calls again in {math.ceil(seconds)} s"
            raise Overloaded(what, remedy="try again later", retry_after=timedelta(seconds=seconds))
        self._asking.waits(expert, f"{expert} is overloaded; it is called again in {math.ceil(seconds)} s")
        await asyncio.sleep(seconds)

    async def _place(self) -> str:
        """The address for a call, as soon as there is one and it is this call's turn, which then is taken."""
        while True:
            if not self._candidate.endpoints:
                await self._awake()
            elif not self._usable():
                await self._recovered()
            else:
                await self._take_turn()
                if address := self._calls.place(self._candidate, self._shunned):
                    return address
                self._turns.give_back(self._turn)

    def _usable(self) -> bool:
        return not self._calls.seconds_left(self._candidate)

    async def _take_turn(self) -> None:
        if self._turns.try_take(self._turn):
            return
        expert = self._candidate.expert
        reason = f"other calls of {expert}, or of this run, are under way"
        notice = asyncio.get_running_loop().call_later(NOTICEABLE_SECONDS, self._asking.waits, expert, reason)
        try:
            async with asyncio.timeout(self._left):
                await self._turns.take(self._turn)
        except TimeoutError:
            raise self._too_late("had a turn") from None
        finally:
            notice.cancel()

    async def _recovered(self) -> None:
        """Waits until something is known of what was failing, or it may be tried again."""
        seconds, expert = self._seconds_to_probe(), self._candidate.expert
        self._asking.waits(expert, f"{self._trouble()}; it is tried again and again")
        await self._calls.circuits.change(seconds)
        if all(self._calls.lost(self._candidate, endpoint.address) for endpoint in self._candidate.endpoints):
            await self._look_again()

    def _seconds_to_probe(self) -> float:
        seconds = self._calls.seconds_left(self._candidate)
        if self._patient and seconds < min(PATIENCE_SECONDS, self._left):
            return seconds
        remedy = (
            f"see the log of {self._candidate.expert}, or start it again; it is tried again in {math.ceil(seconds)} s"
        )
        after = timedelta(seconds=seconds)
        raise OutOfReach(self._trouble(), reason="CIRCUIT_OPEN", remedy=remedy, retry_after=after)

    def _trouble(self) -> str:
        candidate = self._candidate
        place, model = self._calls.trouble(candidate)
        if model:
            return f"model {candidate.model_id} of expert {candidate.expert} keeps failing: {model}"
        return f"expert {candidate.expert} cannot be reached: {place}"

    async def _awake(self) -> None:
        """Waits until an expert without an address has one."""
        candidate, expert = self._candidate, self._candidate.expert
        if not candidate.dormant:
            raise OutOfReach(f"expert {expert} has no address", remedy="start the expert, or try again later")
        start = candidate.start_duration.ToTimedelta().total_seconds() or USUAL_START_SECONDS
        if start > self._asking.left:
            what = f"expert {expert} sleeps, and takes about {start:.0f} s to start: longer than there is time"
            raise OutOfReach(what, reason="ASLEEP", remedy=f"wake {expert} before, or {_MORE_TIME}")
        reason = f"{expert} sleeps; it takes about {start:.0f} s to start"
        self._asking.waits(expert, reason, candidate.start_duration if candidate.HasField("start_duration") else None)
        try:
            async with asyncio.timeout(max(self._left, min(start, self._asking.left))):
                with self._sleepers.watched() as changed:
                    while not self._candidate.endpoints:
                        version = changed.version
                        await self._look_again()
                        if not self._candidate.endpoints:
                            await changed.wait(version)
        except TimeoutError:
            what = f"expert {expert} did not wake in time"
            raise OutOfReach(what, reason="ASLEEP", remedy=f"see why {expert} does not start") from None

    async def _look_again(self) -> None:
        """Where the candidate is now, if the selector knows."""
        self._candidate = same(self._candidate, await self._asking.anew())

    @property
    def _left(self) -> float:
        """Seconds this candidate has left."""
        return self._until.left

    def _too_late(self, what: str) -> DeadlineExceeded:
        return DeadlineExceeded(f"the time was over before {self._candidate.expert} {what}", remedy=_MORE_TIME)
