"""Keeping a new run unless one was kept under its idempotency key."""

import time
from collections.abc import Sequence
from typing import Any

from services.common.database import Operation, Query, Steps
from services.common.errors import AlreadyExists
from services.orchestrator.journal.row_writers import kept
from services.orchestrator.journal.statements import KNOWN_KEY, TAKE_KEY, Statements
from services.orchestrator.journal.tables import IDEMPOTENCY_SECONDS, NewRun


def once(sql: Statements, run: NewRun, row: Sequence[Any]) -> Operation[str]:
    """Keeps a run, its row and its first event, with its key; gives the id of the run that the key stands for.

    Raises:
        AlreadyExists: IDEMPOTENCY, the key stands for another request.
    """
    tenant, key, now = run.caller.tenant, run.idempotency_key, time.time()
    since = now - IDEMPOTENCY_SECONDS
    puts = [(sql.runs, [row]), *kept(run.id, [run.first])]
    taking = Query(TAKE_KEY, (tenant, key, run.id, run.digest, now, since), puts, alone=True)

    def operation() -> Steps[str]:
        while not (yield taking):
            for run_id, digest in (yield Query(KNOWN_KEY, (tenant, key, since))):
                return _same_request(run_id, digest == run.digest)
        return run.id

    return operation


def _same_request(run_id: str, same: bool) -> str:
    if not same:
        raise AlreadyExists(
            "this idempotency key was used for another request", reason="IDEMPOTENCY", remedy="use a new key"
        )
    return run_id
