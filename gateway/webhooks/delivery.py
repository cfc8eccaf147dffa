"""Delivers webhook notifications with retries; several gateways share the queue."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.webhooks.sender import ATTEMPT_SECONDS, DeliveryOutcome, DeliveryStatus, WebhookMessage, send
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.call_context import use_caller
from services.common.database import Database, Query, Rows, Steps
from services.common.errors import ServiceError
from services.common.http_fetch.ssrf_guard import SsrfGuard
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
"""Seconds between polls for due deliveries."""

RETRY_DELAYS = (5.0, 300.0, 1800.0, 7200.0, 18000.0)
"""Seconds between attempts; with the first attempt six in total, within seven and a half hours."""

MAX_RETRY_DELAY_SECONDS = 24 * 3600.0
"""Upper limit of a receiver's Retry-After."""

MAX_CONCURRENT = 32
MAX_CONCURRENT_PER_WEBHOOK = 4
"""Concurrent deliveries to one webhook, so that a slow receiver does not block others."""

LEASE_SECONDS = 4 * ATTEMPT_SECONDS
"""Seconds after which another gateway retries an attempt that has not finished."""

RETENTION_SECONDS = 7 * 24 * 3600.0
"""Seconds for which finished deliveries are stored."""

_DELETE_INTERVAL_SECONDS = 3600.0
_JITTER = 0.2
_STATES = {
    DeliveryStatus.DELIVERED: "delivered",
    DeliveryStatus.FAILED: "failed",
    DeliveryStatus.REFUSED: "failed",
    DeliveryStatus.WITHHELD: "withheld",
    DeliveryStatus.GONE: "failed",
}


@dataclass(frozen=True)
class ClaimedDelivery:
    """A delivery leased by this gateway."""

    message: WebhookMessage
    webhook_id: str
    caller: Caller
    attempt: int


class DeliveryWorker:
    """Sends due deliveries.

    Args:
        database: the gateway's database.
        guard: decides which addresses may be contacted.
        retry_delays: seconds between attempts.
    """

    def __init__(self, database: Database, guard: SsrfGuard, retry_delays: Sequence[float] = RETRY_DELAYS) -> None:
        self._database = database
        self._guard = guard
        self._retry_delays = retry_delays
        self._busy = Counter[str]()
        self._active: set[asyncio.Task[None]] = set()
        self._last_deletion = 0.0
        now, dialect = database.dialect.now, database.dialect
        self._claim_sql = (
            f"WITH found AS MATERIALIZED (SELECT id FROM deliveries WHERE due <= {now}"  # noqa: S608  # of constants
            f" AND NOT (webhook_id {dialect.among}) ORDER BY due LIMIT 1{dialect.skip_locked})"
            f" UPDATE deliveries SET due = {now} + ?, attempts = attempts + 1"
            " WHERE id IN (SELECT id FROM found) RETURNING id, webhook_id, policy, payload, attempts"
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Delivers within the block; attempts interrupted at its end are retried later by any gateway."""
        polling = asyncio.create_task(supervise(self._run_periodically, name="webhook deliveries"), name="webhooks")
        try:
            yield
        finally:
            tasks = [polling, *self._active]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def deliver_due(self) -> None:
        """Starts the due deliveries, up to the limits of concurrency.

        Raises:
            ServiceError: the database is unavailable.
        """
        while len(self._active) < MAX_CONCURRENT:
            full = [webhook_id for webhook_id, count in self._busy.items() if count >= MAX_CONCURRENT_PER_WEBHOOK]
            claimed = await self._database.write(lambda full=full: self._claim_next(full))  # type: ignore[misc]  # the loop's
            if claimed is None:
                break
            self._busy[claimed.webhook_id] += 1
            task = asyncio.create_task(self._deliver(claimed), name=claimed.message.id)
            self._active.add(task)
            task.add_done_callback(self._active.discard)

    async def drain(self) -> None:
        """Waits for the active deliveries."""
        await asyncio.gather(*self._active)

    async def _run_periodically(self) -> None:
        while True:
            try:
                await self.deliver_due()
                await self._delete_old()
            except ServiceError as error:
                log.warning("cannot deliver webhooks; retrying", error=error.message)
            await asyncio.sleep(POLL_SECONDS)

    def _claim_next(self, full: Sequence[str]) -> Steps[ClaimedDelivery | None]:
        rows = yield Query(self._claim_sql, (self._database.dialect.texts(full), LEASE_SECONDS))
        if not rows:
            return None
        ((delivery_id, webhook_id, policy, payload, attempt),) = rows
        found: Rows = yield Query("SELECT tenant, url, secret FROM webhooks WHERE id = ?", (webhook_id,))
        if not found:
            yield Query("DELETE FROM deliveries WHERE id = ?", (delivery_id,))
            return None
        ((tenant, url, secret),) = found
        return ClaimedDelivery(
            WebhookMessage(delivery_id, url, secret, payload), webhook_id, Caller(tenant=tenant, policy=policy), attempt
        )

    async def _deliver(self, claimed: ClaimedDelivery) -> None:
        try:
            with use_caller(claimed.caller):
                outcome = await self._attempt(claimed.message)
            delay = self._retry_delay(claimed.attempt, outcome)
            await self._database.write(lambda: self._record(claimed, outcome, delay))
            log.info(
                "webhook delivered" if outcome.status is DeliveryStatus.DELIVERED else "webhook delivery failed",
                webhook=claimed.webhook_id,
                delivery=claimed.message.id,
                attempt=claimed.attempt,
                outcome=outcome.message,
            )
        except ServiceError as error:
            log.warning("cannot record webhook delivery", delivery=claimed.message.id, error=error.message)
        finally:
            self._busy -= Counter([claimed.webhook_id])

    async def _attempt(self, message: WebhookMessage) -> DeliveryOutcome:
        """Makes one attempt; an unexpected error counts as a failure, so that the number of attempts stays limited."""
        try:
            return await send(message, self._guard)
        except Exception:
            log.exception("unexpected error in webhook delivery", delivery=message.id)
            return DeliveryOutcome(DeliveryStatus.FAILED, "the gateway failed to send it; see its log")

    def _retry_delay(self, attempt: int, outcome: DeliveryOutcome) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        if outcome.status is not DeliveryStatus.FAILED or attempt > len(self._retry_delays):
            return None
        usual = self._retry_delays[attempt - 1] * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311  # jitter
        return max(usual, min(outcome.retry_after, MAX_RETRY_DELAY_SECONDS))

    def _record(self, claimed: ClaimedDelivery, outcome: DeliveryOutcome, delay: float | None) -> Steps[None]:
        now = self._database.dialect.now
        state = _STATES[outcome.status] if delay is None else "waiting"
        update = f"UPDATE deliveries SET state = ?, outcome = ?, due = {now} + ? WHERE id = ? AND attempts = ?"  # noqa: S608
        yield Query(update, (state, outcome.message, delay, claimed.message.id, claimed.attempt))
        if outcome.status is DeliveryStatus.GONE:
            yield Query(f"UPDATE webhooks SET ended = {now} WHERE id = ?", (claimed.webhook_id,))  # noqa: S608
            over = "UPDATE deliveries SET state = 'failed', outcome = ?, due = NULL WHERE webhook_id = ? AND due > 0"
            yield Query(over, (outcome.message, claimed.webhook_id))

    async def _delete_old(self) -> None:
        """Deletes old deliveries once an hour."""
        if time.monotonic() - self._last_deletion < _DELETE_INTERVAL_SECONDS and self._last_deletion:
            return
        self._last_deletion = time.monotonic()

        def operation() -> Steps[None]:
            old = f"created < {self._database.dialect.now} - {RETENTION_SECONDS}"
            yield Query(f"DELETE FROM deliveries WHERE due IS NULL AND {old}")  # noqa: S608  # of constants

        await self._database.write(operation)
