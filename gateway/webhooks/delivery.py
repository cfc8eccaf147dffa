"""Deliveries made until they are taken, or as often as is reasonable; several gateways share them."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.webhooks.sender import ATTEMPT_SECONDS, End, Letter, Outcome, sent
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.call_context import use_caller
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import ServiceError
from services.common.http_fetch.ssrf_guard import SsrfGuard
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""How late a delivery may begin."""

PAUSES = (5.0, 300.0, 1800.0, 7200.0, 18000.0)
"""Seconds between attempts, of which there is one more: seven and a half hours in all."""

LONGEST_PAUSE_SECONDS = 24 * 3600.0
"""However long a receiver wants to be left alone."""

AT_ONCE = 32
AT_ONCE_EACH = 4
"""To one webhook: who is slow keeps no other waiting."""

LEASE_SECONDS = 4 * ATTEMPT_SECONDS
"""After this another gateway tries what one has begun and not ended."""

KEPT_SECONDS = 7 * 24 * 3600.0
"""How long it is known what became of a delivery."""

_TIDY_SECONDS = 3600.0
_JITTER = 0.2
_ENDS = {
    End.DELIVERED: "delivered",
    End.FAILED: "failed",
    End.REFUSED: "failed",
    End.WITHHELD: "withheld",
    End.GONE: "failed",
}


@dataclass(frozen=True)
class Claimed:
    """A delivery that is this gateway's until its lease is over."""

    letter: Letter
    webhook_id: str
    caller: Caller
    attempt: int


class Delivering:
    """Makes deliveries as they fall due.

    Args:
        database: the gateway's.
        guard: decides who may be asked.
        pauses: seconds between attempts.
    """

    def __init__(self, database: Database, guard: SsrfGuard, pauses: Sequence[float] = PAUSES) -> None:
        self._database = database
        self._guard = guard
        self._pauses = pauses
        self._busy = Counter[str]()
        self._under_way: set[asyncio.Task[None]] = set()
        self._tidied = 0.0
        now, dialect = database.dialect.now, database.dialect
        self._claim = (
            f"WITH found AS MATERIALIZED (SELECT id FROM deliveries WHERE due <= {now}"  # noqa: S608  # of constants
            f" AND NOT (webhook_id {dialect.among}) ORDER BY due LIMIT 1{dialect.skip_locked})"
            f" UPDATE deliveries SET due = {now} + ?, attempts = attempts + 1"
            " WHERE id IN (SELECT id FROM found) RETURNING id, webhook_id, policy, payload, attempts"
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Makes them within the block; those cut off by its end are made again later, by whoever is there."""
        looking = asyncio.create_task(supervise(self._forever, name="webhook deliveries"), name="webhooks")
        try:
            yield
        finally:
            tasks = [looking, *self._under_way]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> None:
        """Begins those that are due, as far as there is room.

        Raises:
            ServiceError: the database does not answer.
        """
        while len(self._under_way) < AT_ONCE:
            full = [webhook_id for webhook_id, count in self._busy.items() if count >= AT_ONCE_EACH]
            claimed = await self._database.write(lambda full=full: self._claimed(full))  # type: ignore[misc]  # the loop's
            if claimed is None:
                break
            self._busy[claimed.webhook_id] += 1
            task = asyncio.create_task(self._deliver(claimed), name=claimed.letter.id)
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def settled(self) -> None:
        """Waits for those that have begun."""
        await asyncio.gather(*self._under_way)

    async def _forever(self) -> None:
        while True:
            try:
                await self.look()
                await self._tidy()
            except ServiceError as error:
                log.warning("webhooks are told later", error=error.message)
            await asyncio.sleep(LOOK_SECONDS)

    def _claimed(self, full: Sequence[str]) -> Steps[Claimed | None]:
        rows = yield Query(self._claim, (self._database.dialect.texts(full), LEASE_SECONDS))
        if not rows:
            return None
        ((delivery_id, webhook_id, policy, payload, attempt),) = rows
        found: Rows = yield Query("SELECT tenant, url, secret FROM webhooks WHERE id = ?", (webhook_id,))
        if not found:
            yield Query("DELETE FROM deliveries WHERE id = ?", (delivery_id,))
            return None
        ((tenant, url, secret),) = found
        return Claimed(
            Letter(delivery_id, url, secret, payload), webhook_id, Caller(tenant=tenant, policy=policy), attempt
        )

    async def _deliver(self, claimed: Claimed) -> None:
        try:
            with use_caller(claimed.caller):
                outcome = await self._sent(claimed.letter)
            pause = self._pause(claimed.attempt, outcome)
            await self._database.write(lambda: self._noted(claimed, outcome, pause))
            log.info(
                "a webhook was told" if outcome.end is End.DELIVERED else "a webhook was not told",
                webhook=claimed.webhook_id,
                delivery=claimed.letter.id,
                attempt=claimed.attempt,
                outcome=outcome.words,
            )
        except ServiceError as error:
            log.warning("what came of a delivery is not kept", delivery=claimed.letter.id, error=error.message)
        finally:
            self._busy -= Counter([claimed.webhook_id])

    async def _sent(self, letter: Letter) -> Outcome:
        """Makes one attempt; an unexpected error counts as a failed attempt, so that attempts come to an end."""
        try:
            return await sent(letter, self._guard)
        except Exception:
            log.exception("webhook delivery failed unexpectedly", delivery=letter.id)
            return Outcome(End.FAILED, "the gateway failed to send it; see its log")

    def _pause(self, attempt: int, outcome: Outcome) -> float | None:
        """Seconds until the next attempt; None: there is none."""
        if outcome.end is not End.FAILED or attempt > len(self._pauses):
            return None
        usual = self._pauses[attempt - 1] * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  # nobody guesses it
        return max(usual, min(outcome.after, LONGEST_PAUSE_SECONDS))

    def _noted(self, claimed: Claimed, outcome: Outcome, pause: float | None) -> Steps[None]:
        now = self._database.dialect.now
        state = _ENDS[outcome.end] if pause is None else "waiting"
        update = f"UPDATE deliveries SET state = ?, outcome = ?, due = {now} + ? WHERE id = ? AND attempts = ?"  # noqa: S608
        yield Query(update, (state, outcome.words, pause, claimed.letter.id, claimed.attempt))
        if outcome.end is End.GONE:
            yield Query(f"UPDATE webhooks SET ended = {now} WHERE id = ?", (claimed.webhook_id,))  # noqa: S608
            over = "UPDATE deliveries SET state = 'failed', outcome = ?, due = NULL WHERE webhook_id = ? AND due > 0"
            yield Query(over, (outcome.words, claimed.webhook_id))

    async def _tidy(self) -> None:
        """Forgets now and then what has long been over."""
        if time.monotonic() - self._tidied < _TIDY_SECONDS and self._tidied:
            return
        self._tidied = time.monotonic()

        def operation() -> Steps[None]:
            old = f"created < {self._database.dialect.now} - {KEPT_SECONDS}"
            yield Query(f"DELETE FROM deliveries WHERE due IS NULL AND {old}")  # noqa: S608  # of constants

        await self._database.write(operation)
