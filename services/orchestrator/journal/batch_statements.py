"""SQL of batches, for one database dialect."""

# ruff: noqa: S608  # composed of constants; values are always parameters

from collections.abc import Collection

from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RUN_STATE_QUEUED, RUN_STATE_RUNNING
from services.common.database import Dialect, InsertInto
from services.orchestrator.journal.pages import paged

_FIELDS = (
    *("id", "tenant", "state", "created", "ended", "total", "caller", "spec", "pipeline"),
    *("round", "failed_only", "waiting_for", "failure", "taken_up"),
)
COLUMNS = ", ".join(_FIELDS)

HIDDEN = -1
"""State of a batch that is being deleted; state 0: its items are still arriving."""

_OPEN = f"state > 0 AND state < {RUN_STATE_COMPLETED}"

ITEMS = InsertInto("batch_items", {"batch_id": "text", "idx": "bigint", "name": "text", "inputs": "bytea"})

NOTHING = "SELECT 1"
CREATE = (
    "INSERT INTO batches (id, tenant, idempotency_key, digest, state, created, caller, spec, pipeline, failure)"
    " VALUES (?, ?, '', '', 0, ?, ?, ?, ?, ?)"
)
KNOWN_KEY = "SELECT id, digest FROM batches WHERE tenant = ? AND idempotency_key = ? AND state > 0"
START = (
    "UPDATE batches SET state = ?, idempotency_key = ?, digest = ?, total = ? WHERE id = ? AND state = 0 RETURNING id"
)

ROW = f"SELECT {COLUMNS} FROM batches WHERE id = ? AND tenant = ? AND state > 0"
COUNTS = (
    "SELECT state, COUNT(*), SUM(CASE WHEN ended > ? AND run_id != '' THEN 1 ELSE 0 END) FROM batch_runs"
    " WHERE batch_id = ? GROUP BY state"
)
_WITH_RUNS = " LEFT JOIN batch_runs ON batch_runs.batch_id = batch_items.batch_id AND batch_runs.idx = batch_items.idx"
_FROM_ITEMS = f" FROM batch_items{_WITH_RUNS} WHERE batch_items.batch_id = ? AND batch_items.idx > ?"
_STATE = f"COALESCE(batch_runs.state, {RUN_STATE_QUEUED})"
ACTIVE_RUNS = f"SELECT run_id FROM batch_runs WHERE batch_id = ? AND state = {RUN_STATE_RUNNING}"

COMMAND = "SELECT wish FROM batches WHERE id = ?"
OWNED = "UPDATE batches SET fence = fence WHERE id = ? AND fence = ? RETURNING id"
"""Changes nothing, but prevents other owners from claiming the batch until the transaction ends."""
SET_PIPELINE = "UPDATE batches SET pipeline = ? WHERE id = ? AND fence = ? RETURNING id"
SET_WAITING_REASON = "UPDATE batches SET waiting_for = ? WHERE id = ? AND fence = ? RETURNING id"
RELEASE = f"UPDATE batches SET lease_until = 0 WHERE owner = ? AND {_OPEN}"

CANCEL = f"UPDATE batches SET wish = 'cancel' WHERE id = ? AND {_OPEN}"
STATE = "SELECT state, total, wish, LENGTH(pipeline) FROM batches WHERE id = ? AND tenant = ? AND state > 0"
QUEUE_AGAIN = "UPDATE batch_runs SET state = ? WHERE batch_id = ? AND state IN (?, ?) RETURNING idx"
STARTED = "SELECT COUNT(*) FROM batch_runs WHERE batch_id = ?"
RESUME = (
    "UPDATE batches SET state = ?, failed_only = ?, failure = ?, wish = '', ended = 0, round = round + 1,"
    " lease_until = 0 WHERE id = ?"
)


def _queued(state: str) -> str:
    """Items to run, up to a number of bytes, but at least one."""
    return (
        f"WITH found AS (SELECT batch_items.idx AS mark, LENGTH(inputs) AS size{_FROM_ITEMS}"
        f" AND {state} = {RUN_STATE_QUEUED} ORDER BY mark LIMIT ?),"
        " measured AS (SELECT mark, SUM(size) OVER (ORDER BY mark) - size AS before FROM found)"
        " SELECT idx, name, inputs FROM measured JOIN batch_items ON batch_id = ? AND idx = mark"
        " WHERE before < ? ORDER BY idx"
    )


NEXT = _queued(_STATE)
NEXT_AGAIN = _queued("batch_runs.state")


class Statements:
    """Statements that differ between database dialects."""

    def __init__(self, dialect: Dialect) -> None:
        now = dialect.now
        self.texts = dialect.texts
        due = f"{_OPEN} AND lease_until < {now}"
        self.due = (
            "SELECT id, tenant FROM (SELECT id, tenant, created, ROW_NUMBER() OVER (PARTITION BY tenant"
            f" ORDER BY created, id) AS turn FROM batches WHERE {due} AND NOT (id {dialect.among})) AS turns"
            " ORDER BY turn, created, id LIMIT ?"
        )
        self.claim = (
            f"WITH due AS MATERIALIZED (SELECT id FROM batches WHERE {due} AND id {dialect.among}{dialect.skip_locked})"
            f" UPDATE batches SET owner = ?, fence = fence + 1, lease_until = {now} + ?, state = ?, taken_up = {now}"
            f" WHERE id IN (SELECT id FROM due) RETURNING fence, {COLUMNS}"
        )
        self.renew = (
            f"UPDATE batches SET lease_until = {now} + ? WHERE id {dialect.among} AND owner = ? RETURNING id, fence"
        )
        self.end = (
            f"UPDATE batches SET state = ?, failure = ?, waiting_for = '', ended = {now} WHERE id = ? AND fence = ?"
            " RETURNING id"
        )


def rows(before: bool, states: Collection[int]) -> str:
    """A page of a tenant's batches, newest first."""
    where = ["tenant = ?", "state > 0"]
    if before:
        where.append("(created, id) < (?, ?)")
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
    return paged(
        "SELECT id AS mark, created AS begun, LENGTH(spec) + LENGTH(pipeline) AS size"
        f" FROM batches WHERE {' AND '.join(where)}",
        "begun DESC, mark DESC",
        f"SELECT many, {COLUMNS} FROM measured JOIN batches ON id = mark",
    )


def listed(states: Collection[int], *, inputs: bool) -> str:
    """A page of a batch's items with their outcomes, with or without their inputs."""
    in_states = f" AND {_STATE} IN ({', '.join('?' * len(states))})" if states else ""
    input_column, size = ("inputs", "LENGTH(inputs) + ") if inputs else ("NULL", "")
    return paged(
        f"SELECT batch_items.idx AS mark, {size}COALESCE(LENGTH(outcome), 0) AS size{_FROM_ITEMS}{in_states}",
        "mark",
        f"SELECT many, batch_items.idx, name, {input_column}, COALESCE(run_id, ''), {_STATE}, outcome FROM measured"
        f" JOIN batch_items ON batch_items.batch_id = ? AND batch_items.idx = mark{_WITH_RUNS}",
    )
