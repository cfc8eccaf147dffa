"""Holds callers to their limits: what is too much is refused before anything is done about it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from gateway.auth import identity
from gateway.auth.identity import Identity
from gateway.limits.rate_window import DAY, MINUTE, Counters, Window, beginning
from gateway.limits.run_slots import Slots
from services.common.errors import Overloaded, ServiceError

log = structlog.get_logger(__name__)

REQUESTS, BYTES, TOKENS = "requests", "bytes", "tokens"

PIECE_BYTES = 8 * 1024 * 1024
"""How much may come in before it is counted, where so much is left."""

Taken = Callable[[str], Awaitable[None]]
"""Told the id of the run that a place was held for."""


@dataclass(frozen=True)
class Standing:
    """Where a caller stands, of what it has a limit for."""

    requests: Window | None = None
    tokens: Window | None = None

    def check(self) -> None:
        """Raises Overloaded: RATE_LIMIT, this request is one too many."""
        if self.requests and self.requests.used > self.requests.limit:
            raise _too_much("RATE_LIMIT", f"the key may send {self.requests.limit} requests in a minute", self.requests)

    def headers(self) -> dict[str, str]:
        """As OpenAI's clients read them."""
        told = dict[str, str]()
        for name, window in ((REQUESTS, self.requests), (TOKENS, self.tokens)):
            if window:
                told[f"x-ratelimit-limit-{name}"] = str(window.limit)
                told[f"x-ratelimit-remaining-{name}"] = str(window.left)
                told[f"x-ratelimit-reset-{name}"] = _duration(window.resets_in)
        return told


class Quotas:
    """Counts for all limits.

    Args:
        minutes: counts requests.
        days: counts bytes and tokens.
    """

    def __init__(self, minutes: Counters, days: Counters, slots: Slots, clock: Callable[[], float] = time.time) -> None:
        self._minutes = minutes
        self._days = days
        self._slots = slots
        self._clock = clock

    async def request(self, who: Identity) -> Standing:
        """Counts one; where that leaves the caller."""
        limits, requests, tokens = who.limits, None, None
        if limits.requests_per_minute:
            used = await self._minutes.add(who.key_id, REQUESTS, MINUTE, 1)
            requests = self._window(limits.requests_per_minute, used, MINUTE)
        if limits.tokens_per_day:
            tokens = await self._tokens(who)
        return Standing(requests, tokens)

    def meter(self, who: Identity) -> "Meter | None":
        """For the bytes of a request, where they are limited."""
        return Meter(who, self._days, self._window) if who.limits.bytes_per_day else None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Taken]:
        """A place for a run of the current identity; whoever is given it tells which run took it.

        Raises:
            Overloaded: RUNS_LIMIT or TOKENS_QUOTA.
        """
        who = identity.current()
        await self._check_tokens(who)
        if not who.limits.concurrent_runs:
            yield _anyone
            return
        slot = await self._slots.reserve(who.key_id, who.limits.concurrent_runs)
        try:
            yield partial(self._take, slot)
        except ServiceError:
            await self._slots.free(slot)
            raise

    async def items(self, wanted: int) -> int:
        """How many items of a batch of the current identity may be under way at once; 0 is no limit.

        Its items have places of their own, beside those of runs: a key has no more of them at once than it may have
        runs, which each orchestrator counts over the batches that it drives; their tokens count as those of runs do.

        Args:
            wanted: so many are asked for; 0 asks for as many as may be.

        Raises:
            Overloaded: TOKENS_QUOTA.
        """
        who = identity.current()
        await self._check_tokens(who)
        most = who.limits.concurrent_runs
        return min(wanted or most, most) if most else wanted

    async def _check_tokens(self, who: Identity) -> None:
        if who.limits.tokens_per_day and not (tokens := await self._tokens(who)).left:
            raise _too_much("TOKENS_QUOTA", f"the key may use {tokens.limit} LLM tokens in a day", tokens)

    async def _take(self, slot: str, run_id: str) -> None:
        """The run is there, so it is watched even where that cannot be written; its place is held for a while."""
        try:
            await asyncio.shield(self._slots.take(slot, run_id))
        except ServiceError as error:
            log.warning("whose place a run has cannot be written", run_id=run_id, error=error.message)

    async def _tokens(self, who: Identity) -> Window:
        used = await self._days.add(who.key_id, TOKENS, DAY, 0)
        return self._window(who.limits.tokens_per_day, used, DAY)

    def _window(self, limit: int, used: int, seconds: int) -> Window:
        now = self._clock()
        return Window(limit, used, beginning(now, seconds) + seconds - now)


class Meter:
    """Counts the bytes of one request."""

    def __init__(self, who: Identity, days: Counters, window: Callable[[int, int, int], Window]) -> None:
        self._who = who
        self._days = days
        self._window = window
        self._pending = 0
        self._room = -1

    async def take(self, amount: int) -> None:
        """So many more.

        Raises:
            Overloaded: BYTES_QUOTA.
        """
        self._pending += amount
        if self._pending <= self._room:
            return
        limit = self._who.limits.bytes_per_day
        window = self._window(limit, await self._count(), DAY)
        self._room = min(PIECE_BYTES, limit - window.used)
        if window.used > limit:
            raise _too_much("BYTES_QUOTA", f"the key may send {limit / 1e6:g} MB in a day", window)

    async def settle(self) -> None:
        """Counts what has not been yet."""
        if self._pending:
            await self._count()

    async def _count(self) -> int:
        pending, self._pending = self._pending, 0
        return await self._days.add(self._who.key_id, BYTES, DAY, pending)


async def _anyone(run_id: str) -> None:
    """Runs are not limited."""


def _too_much(reason: str, limit: str, window: Window) -> Overloaded:
    return Overloaded(
        f"{limit}, and has done so",
        reason=reason,
        remedy="wait as long as Retry-After says, or ask the operator for more: hugginggpt keys change",
        retry_after=timedelta(seconds=window.resets_in),
    )


def _duration(seconds: float) -> str:
    """As in 6h3m2s."""
    minutes, rest = divmod(int(-(-seconds // 1)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"
