"""Places for runs: a key with a limit holds one from before a run is asked for until its end is known."""

import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from services.common.database import Database, Query, Steps
from services.common.errors import Overloaded

UNSURE_SECONDS = 900.0
"""How long a place is held of which nobody said whether a run took it: as long as runs usually have."""

LONGEST_SECONDS = 48 * 3600.0
"""How long a run can hold one; longer, and its end has been missed."""

AGAIN_SECONDS = 5.0


class Slots:
    """Places of all gateways on one database."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def reserve(self, key_id: str, limit: int) -> str:
        """A place; its name.

        Raises:
            Overloaded: RUNS_LIMIT, all are taken.
        """
        slot, now = uuid.uuid4().hex, self._clock()

        def operation() -> Steps[None]:
            yield Query(self._database.dialect.lock, (f"slots of {key_id}",))
            count = "SELECT count(*) FROM admitted_runs WHERE key_id = ? AND until > ?"
            ((taken,),) = yield Query(count, (key_id, now))
            if taken >= limit:
                raise Overloaded(
                    f"the key already has {taken} runs under way, as many as it may",
                    reason="RUNS_LIMIT",
                    remedy="wait until one has ended, or cancel one",
                    retry_after=timedelta(seconds=AGAIN_SECONDS),
                )
            insert = "INSERT INTO admitted_runs (slot, key_id, run_id, until) VALUES (?, ?, '', ?)"
            yield Query(insert, (slot, key_id, now + UNSURE_SECONDS))

        await self._database.write(operation)
        return slot

    async def take(self, slot: str, run_id: str) -> None:
        """The run has the place, unless it has one already or has ended: then nobody has."""

        def operation() -> Steps[None]:
            yield Query(self._database.dialect.lock, (run_id,))
            known = "SELECT 1 FROM ended_runs WHERE run_id = ? UNION SELECT 1 FROM admitted_runs WHERE run_id = ?"
            if (yield Query(known, (run_id, run_id))):
                yield Query("DELETE FROM admitted_runs WHERE slot = ?", (slot,))
            else:
                update = "UPDATE admitted_runs SET run_id = ?, until = ? WHERE slot = ?"
                yield Query(update, (run_id, self._clock() + LONGEST_SECONDS, slot))

        await self._database.write(operation)

    async def free(self, slot: str) -> None:
        """No run has come to be."""

        def operation() -> Steps[None]:
            yield Query("DELETE FROM admitted_runs WHERE slot = ?", (slot,), alone=True)

        await self._database.write(operation)
