"""Quotas of keys and JWT subjects: requests per minute, concurrent runs, and bytes and tokens per day.

The slot of a run is reserved before the run is started, and released when its end is known.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from gateway.auth import identity
from gateway.auth.identity import Identity
from gateway.limits.usage_counters import DAY, MINUTE, Counters, Window, window_start
from services.common.database import Database, Query, Steps
from services.common.errors import Overloaded, ServiceError

UNASSIGNED_SECONDS = 900.0
"""Lifetime of a reserved slot whose run is unknown, in seconds: as long as most runs take."""

MAX_RUN_SECONDS = 48 * 3600.0
"""Longest time a run can hold a slot, in seconds; after it, its end must have been missed."""

RETRY_AFTER_SECONDS = 5.0

log = structlog.get_logger(__name__)

REQUESTS, BYTES, TOKENS = "requests", "bytes", "tokens"

COUNT_CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes of a request that may arrive before they are counted in the database, if the quota leaves that many."""

AssignRun = Callable[[str], Awaitable[None]]
"""Assigns a reserved slot to the run with the given id."""


class RunSlots:
    """Run slots of all gateways on one database."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def reserve(self, key_id: str, limit: int) -> str:
        """Reserves a slot and returns its id.

        Raises:
            Overloaded: RUNS_LIMIT, the limit is reached.
        """
        slot, now = uuid.uuid4().hex, self._clock()

        def operation() -> Steps[None]:
            yield Query(self._database.dialect.lock, (f"slots of {key_id}",))
            count = "SELECT count(*) FROM admitted_runs WHERE key_id = ? AND until > ?"
            ((used,),) = yield Query(count, (key_id, now))
            if used >= limit:
                raise Overloaded(
                    f"the limit of {limit} concurrent runs is reached",
                    reason="RUNS_LIMIT",
                    remedy="wait until a run has ended, or cancel one",
                    retry_after=timedelta(seconds=RETRY_AFTER_SECONDS),
                )
            insert = "INSERT INTO admitted_runs (slot, key_id, run_id, until) VALUES (?, ?, '', ?)"
            yield Query(insert, (slot, key_id, now + UNASSIGNED_SECONDS))

        await self._database.write(operation)
        return slot

    async def assign(self, slot: str, run_id: str) -> None:
        """Assigns the slot to the run; releases it if the run has a slot already or has ended."""

        def operation() -> Steps[None]:
            yield Query(self._database.dialect.lock, (run_id,))
            known = "SELECT 1 FROM ended_runs WHERE run_id = ? UNION SELECT 1 FROM admitted_runs WHERE run_id = ?"
            if (yield Query(known, (run_id, run_id))):
                yield Query("DELETE FROM admitted_runs WHERE slot = ?", (slot,))
            else:
                update = "UPDATE admitted_runs SET run_id = ?, until = ? WHERE slot = ?"
                yield Query(update, (run_id, self._clock() + MAX_RUN_SECONDS, slot))

        await self._database.write(operation)

    async def release(self, slot: str) -> None:
        """Releases a slot that no run uses."""

        def operation() -> Steps[None]:
            yield Query("DELETE FROM admitted_runs WHERE slot = ?", (slot,), alone=True)

        await self._database.write(operation)


@dataclass(frozen=True)
class LimitStatus:
    """Usage of a caller's limits at the time of a request; None for a limit that is not set."""

    requests: Window | None = None
    tokens: Window | None = None

    def check(self) -> None:
        """Raises Overloaded: RATE_LIMIT, the request exceeds the limit per minute."""
        if self.requests and self.requests.used > self.requests.limit:
            raise _overloaded(
                "RATE_LIMIT", f"the limit of {self.requests.limit} requests per minute is exceeded", self.requests
            )

    def headers(self) -> dict[str, str]:
        """Returns OpenAI's x-ratelimit-* response headers."""
        headers = dict[str, str]()
        for name, window in ((REQUESTS, self.requests), (TOKENS, self.tokens)):
            if window:
                headers[f"x-ratelimit-limit-{name}"] = str(window.limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(window.left)
                headers[f"x-ratelimit-reset-{name}"] = _duration(window.resets_in)
        return headers


class Quotas:
    """Counts usage and enforces limits.

    Args:
        minutes: counters of requests.
        days: counters of bytes and tokens.
        slots: slots of concurrent runs.
        clock: Unix time in seconds.
    """

    def __init__(
        self, minutes: Counters, days: Counters, slots: RunSlots, clock: Callable[[], float] = time.time
    ) -> None:
        self._minutes = minutes
        self._days = days
        self._slots = slots
        self._clock = clock

    async def request(self, caller: Identity) -> LimitStatus:
        """Counts a request and returns the caller's usage."""
        limits, requests, tokens = caller.limits, None, None
        if limits.requests_per_minute:
            used = await self._minutes.add(caller.key_id, REQUESTS, MINUTE, 1)
            requests = self._window(limits.requests_per_minute, used, MINUTE)
        if limits.tokens_per_day:
            tokens = await self._tokens(caller)
        return LimitStatus(requests, tokens)

    def meter(self, caller: Identity) -> "Meter | None":
        """Returns a counter for the bytes of one request; None if the caller has no byte quota."""
        return Meter(caller, self._days, self._window) if caller.limits.bytes_per_day else None

    @asynccontextmanager
    async def reserve_run(self) -> AsyncIterator[AssignRun]:
        """Reserves a slot for a run of the current identity; yields a function that assigns it to the run.

        Raises:
            Overloaded: RUNS_LIMIT or TOKENS_QUOTA.
        """
        caller = identity.current()
        await self._check_tokens(caller)
        if not caller.limits.concurrent_runs:
            yield _ignore_run
            return
        slot = await self._slots.reserve(caller.key_id, caller.limits.concurrent_runs)
        try:
            yield partial(self._assign, slot)
        except ServiceError:
            await self._slots.release(slot)
            raise

    async def batch_concurrency(self, requested: int) -> int:
        """Returns how many items of a batch may run concurrently for the current identity; 0 is no limit.

        Batch items have slots separate from runs: a key may have as many active items as runs, counted by each
        orchestrator over its batches. Their tokens count against the same quota.

        Args:
            requested: requested concurrency; 0 requests the maximum.

        Raises:
            Overloaded: TOKENS_QUOTA.
        """
        caller = identity.current()
        await self._check_tokens(caller)
        limit = caller.limits.concurrent_runs
        return min(requested or limit, limit) if limit else requested

    async def _check_tokens(self, caller: Identity) -> None:
        if caller.limits.tokens_per_day and not (tokens := await self._tokens(caller)).left:
            raise _overloaded("TOKENS_QUOTA", f"the quota of {tokens.limit} LLM tokens per day is used up", tokens)

    async def _assign(self, slot: str, run_id: str) -> None:
        """Assigns the slot; on failure the run continues, and the unassigned slot expires after a while."""
        try:
            await asyncio.shield(self._slots.assign(slot, run_id))
        except ServiceError as error:
            log.warning("cannot assign run slot", run_id=run_id, error=error.message)

    async def _tokens(self, caller: Identity) -> Window:
        used = await self._days.add(caller.key_id, TOKENS, DAY, 0)
        return self._window(caller.limits.tokens_per_day, used, DAY)

    def _window(self, limit: int, used: int, seconds: int) -> Window:
        now = self._clock()
        return Window(limit, used, window_start(now, seconds) + seconds - now)


class Meter:
    """Byte counter of one request."""

    def __init__(self, caller: Identity, days: Counters, window: Callable[[int, int, int], Window]) -> None:
        self._caller = caller
        self._days = days
        self._window = window
        self._pending = 0
        self._allowed_pending = -1

    async def add(self, amount: int) -> None:
        """Counts received bytes.

        Raises:
            Overloaded: BYTES_QUOTA.
        """
        self._pending += amount
        if self._pending <= self._allowed_pending:
            return
        limit = self._caller.limits.bytes_per_day
        window = self._window(limit, await self._count(), DAY)
        self._allowed_pending = min(COUNT_CHUNK_BYTES, limit - window.used)
        if window.used > limit:
            raise _overloaded("BYTES_QUOTA", f"the quota of {limit / 1e6:g} MB per day is used up", window)

    async def flush(self) -> None:
        """Writes counted bytes that are still pending to the database."""
        if self._pending:
            await self._count()

    async def _count(self) -> int:
        pending, self._pending = self._pending, 0
        return await self._days.add(self._caller.key_id, BYTES, DAY, pending)


async def _ignore_run(run_id: str) -> None:
    """Replaces the assignment of a slot for callers without a limit."""


def _overloaded(reason: str, message: str, window: Window) -> Overloaded:
    return Overloaded(
        message,
        reason=reason,
        remedy="retry after the time in Retry-After, or ask the operator for a higher limit (hugginggpt keys change)",
        retry_after=timedelta(seconds=window.resets_in),
    )


def _duration(seconds: float) -> str:
    """Formats seconds as in 6h3m2s."""
    minutes, rest = divmod(int(-(-seconds // 1)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def use_meter(meter: Meter | None) -> Iterator[None]:
    """Uses the meter within the block; None if bytes are not limited."""
    token = _current.set(meter)
    try:
        yield
    finally:
        _current.reset(token)


async def count_bytes(content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Passes the chunks through and counts them.

    Raises:
        Overloaded: BYTES_QUOTA.
    """
    meter = _current.get()
    async for piece in content:
        if meter:
            await meter.add(len(piece))
        yield piece
