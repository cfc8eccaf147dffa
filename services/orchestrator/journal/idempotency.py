"""Stores a new run unless its idempotency key was used before."""

import time
from collections.abc import Sequence
from typing import Any

from services.common.database import Operation, Query, Steps
from services.common.errors import AlreadyExists
from services.orchestrator.journal.row_writers import event_rows
from services.orchestrator.journal.statements import KNOWN_KEY, TAKE_KEY, Statements
from services.orchestrator.journal.tables import IDEMPOTENCY_SECONDS, NewRun


def accept_once(sql: Statements, run: NewRun, row: Sequence[Any]) -> Operation[str]:
    """Stores a run, its first event and its key; returns the ID of the run for which the key was first used.

    Raises:
        AlreadyExists: IDEMPOTENCY, the key was used for another request.
    """
    tenant, key, now = run.caller.tenant, run.idempotency_key, time.time()
    since = now - IDEMPOTENCY_SECONDS
    inserts = [(sql.runs, [row]), *event_rows(run.id, [run.first])]
    take_key = Query(TAKE_KEY, (tenant, key, run.id, run.digest, now, since), inserts, alone=True)

    def operation() -> Steps[str]:
        while not (yield take_key):
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
