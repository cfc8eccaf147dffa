"""Slots of concurrent runs: reserved before a run is started, released when its end is known."""

import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from services.common.database import Database, Query, Steps
from services.common.errors import Overloaded

UNASSIGNED_SECONDS = 900.0
"""Lifetime of a reserved slot whose run is unknown, in seconds: as long as most runs take."""

MAX_RUN_SECONDS = 48 * 3600.0
"""Longest time a run can hold a slot, in seconds; after it, its end must have been missed."""

RETRY_AFTER_SECONDS = 5.0


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
