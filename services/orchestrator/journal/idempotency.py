"""Idempotency keys: stores a new run unless its key was used before."""

import time

from services.common.database import Operation, Query, Steps
from services.common.errors import AlreadyExists
from services.orchestrator.journal.store import Inserts

IDEMPOTENCY_SECONDS = 24 * 3600.0
"""How long an idempotency key is valid."""

_TAKE_KEY = (
    "INSERT INTO idempotency_keys (tenant, key, run_id, digest, created) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (tenant, key) DO UPDATE SET"
    " run_id = excluded.run_id, digest = excluded.digest, created = excluded.created"
    " WHERE idempotency_keys.created < ? RETURNING run_id"
)
"""Returns no row if the key belongs to another run; waits for a concurrent transaction that takes the key."""
_KNOWN_KEY = "SELECT run_id, digest FROM idempotency_keys WHERE tenant = ? AND key = ? AND created >= ?"


def insert_once(tenant: str, key: str, run_id: str, digest: str, inserts: Inserts) -> Operation[str]:
    """Inserts the rows of a new run with its key; returns the ID of the run for which the key was first used.

    Args:
        tenant: of the run.
        key: not empty.
        run_id: ID of the new run.
        digest: of the request.
        inserts: rows of the run and its first event.

    Raises:
        AlreadyExists: IDEMPOTENCY, the key was used for another request.
    """
    now = time.time()
    since = now - IDEMPOTENCY_SECONDS
    take_key = Query(_TAKE_KEY, (tenant, key, run_id, digest, now, since), inserts, alone=True)

    def operation() -> Steps[str]:
        while not (yield take_key):
            for known_id, known_digest in (yield Query(_KNOWN_KEY, (tenant, key, since))):
                if known_digest != digest:
                    raise key_reused("request")
                return str(known_id)
        return run_id

    return operation


def key_reused(resource: str) -> AlreadyExists:
    """The error for an idempotency key that was used for another request or batch."""
    return AlreadyExists(
        f"this idempotency key was used for another {resource}", reason="IDEMPOTENCY", remedy="use a new key"
    )
