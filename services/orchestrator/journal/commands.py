"""Commands to the owner of a run: to cancel it, or to execute its approved plan.

Other orchestrators only write commands; the owner turns them into events.
"""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
import time
from dataclasses import dataclass

from services.common.database import Query, Steps
from services.orchestrator.journal.queries import Store, single_query
from services.orchestrator.journal.runs import ACTIVE

CANCEL, APPROVE = "cancel", "approve"
"""Kinds of commands: cancel the run, or approve its plan."""

_INSERT = "INSERT INTO commands (run_id, kind, payload, created) VALUES (?, ?, ?, ?)"
_INSERT_ONCE = (
    "INSERT INTO commands (run_id, kind, payload, created) SELECT ?, ?, ?, ?"
    " WHERE NOT EXISTS (SELECT 1 FROM commands WHERE run_id = ? AND kind = ?)"
)
_LOCK_UNOWNED = f"UPDATE runs SET fence = fence WHERE id = ? AND owner = '' AND {ACTIVE} RETURNING id"
"""Changes nothing, but prevents owners from claiming the run until the transaction ends."""
_OF_RUN = "SELECT kind, payload FROM commands WHERE run_id = ? ORDER BY id"
_OF_OWNER = (
    "SELECT id, run_id, kind, payload FROM commands WHERE run_id IN"
    f" (SELECT id FROM runs WHERE {ACTIVE} AND owner = ?) ORDER BY id"
)


@dataclass(frozen=True)
class Command:
    """A command for the owner of a run."""

    id: int
    run_id: str
    kind: str
    payload: bytes
    """Of an approval: the encoded ApproveRunRequest."""


class CommandStore(Store):
    """Commands to the owners of runs."""

    def cancel(self, run_id: str) -> "asyncio.Future[None]":
        """Stores the command to cancel a run, unless it is stored already."""
        query = Query(_INSERT_ONCE, (run_id, CANCEL, b"", time.time(), run_id, CANCEL), alone=True)
        return self._write("command", single_query(query, lambda _: None), run_id)

    def approve(self, run_id: str, request: bytes) -> "asyncio.Future[bool]":
        """Stores the approval of a parked run; returns whether this approval is stored.

        It is not if the run has an owner or has ended, where it would never be applied, or if it has another command.

        Args:
            run_id: ID of the run.
            request: the encoded ApproveRunRequest.
        """

        def operation() -> Steps[bool]:
            if not (yield Query(_LOCK_UNOWNED, (run_id,))):
                return False
            stored = yield Query(_OF_RUN, (run_id,))
            if not stored:
                yield Query(_INSERT, (run_id, APPROVE, request, time.time()))
            return not stored or tuple(stored[0]) == (APPROVE, request)

        return self._write("command", operation, run_id)

    async def has_command(self, run_id: str) -> bool:
        """Whether a command for a run is stored, applied or not."""
        return bool(await self._database.read(_OF_RUN, run_id))

    async def commands(self) -> list[Command]:
        """Commands for this owner's runs that have not ended, oldest first, including those already applied."""
        return [Command(*found) for found in await self._database.read(_OF_OWNER, self._owner)]
