"""Batches and their items as Python objects, and the rows they are stored as."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2

from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.artifact_pb2 import NamedValue
from protos.hugginggpt.v1.batch_pb2 import BatchCounts, BatchItem, BatchSpec, NewItem
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RunState,
)
from services.common.database import InsertInto
from services.orchestrator.journal.queries import Inserts, decode

BATCH_COLUMNS = (
    "id, tenant, state, created, ended, claimed, total, round, failed_only, waiting_for,"
    " caller, failure, spec, pipeline"
)

CLEAR_OUTCOME = "UPDATE batch_runs SET outcome = ? WHERE batch_id = ? AND item_index = ? AND run_id = ?"
_BATCH_RUNS = InsertInto(
    "batch_runs",
    {
        "batch_id": "text",
        "item_index": "bigint",
        "run_id": "text",
        "state": "bigint",
        "ended": "float8",
        "outcome": "bytea",
    },
    "ON CONFLICT (batch_id, item_index) DO UPDATE SET run_id = excluded.run_id, state = excluded.state,"
    " ended = excluded.ended, outcome = excluded.outcome",
)


@dataclass(frozen=True)
class NewBatch:
    """A batch to store."""

    id: str
    caller: Caller
    spec: BatchSpec
    pipeline: Pipeline
    """Empty if the batch is planned when it runs."""


@dataclass(frozen=True)
class BatchRow:
    """A batch without its items."""

    id: str
    tenant: str
    state: "RunState.ValueType"
    created: float
    ended: float
    total: int
    caller: Caller
    spec: BatchSpec
    pipeline: Pipeline
    round: int
    """Number of times it was started or resumed."""
    failed_only: bool
    """Only items queued again by a resume run."""
    waiting_for: str
    failure: Failure
    claimed_at: float
    """When it was last claimed, in seconds since the epoch; 0: never."""
    is_readable: bool = True
    """False if a part of it cannot be decoded and is empty here: then it must not run."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_RUN_STATES

    @property
    def is_planned(self) -> bool:
        return bool(self.pipeline.plan.tasks)


@dataclass(frozen=True, eq=False)
class Claimed:
    """A batch to run, and the fencing token of its owner."""

    fence: int
    batch: BatchRow

    @property
    def id(self) -> str:
        return self.batch.id


@dataclass(frozen=True)
class Item:
    """An item to run."""

    index: int
    name: str
    inputs: Sequence[NamedValue]
    failure: Failure | None = None
    """Why it cannot run."""


@dataclass(frozen=True)
class Counts:
    """Number of items by state, without those that wait."""

    by_state: "Mapping[RunState.ValueType, int]"
    recent: int
    """Runs that ended lately."""

    def __getitem__(self, state: "RunState.ValueType") -> int:
        return self.by_state.get(state, 0)


_UNREADABLE = Failure(
    reason="CORRUPT",
    code=code_pb2.DATA_LOSS,
    message="the stored data of this item cannot be read",
    remedy="send the item again in a new batch",
)


def batch_row(values: Sequence[Any]) -> BatchRow:
    """Converts a row with the columns BATCH_COLUMNS."""
    id_, tenant, state, created, ended, claimed, total, round_, failed_only, waiting_for, *stored = values
    caller, failure = decode(Caller, stored[0]), decode(Failure, stored[1])
    spec, pipeline = decode(BatchSpec, stored[2]), decode(Pipeline, stored[3])
    return BatchRow(
        id=id_,
        tenant=tenant,
        state=state,
        created=created,
        ended=ended,
        total=total,
        caller=caller or Caller(tenant=tenant),
        spec=spec or BatchSpec(),
        pipeline=pipeline or Pipeline(),
        round=round_,
        failed_only=bool(failed_only),
        waiting_for=waiting_for,
        failure=failure or Failure(),
        claimed_at=claimed,
        is_readable=None not in (caller, spec, pipeline, failure),
    )


def started_rows(batch_id: str, index: int, run_id: str) -> Inserts:
    """The row of an item whose run starts."""
    return [(_BATCH_RUNS, [(batch_id, index, run_id, RUN_STATE_RUNNING, 0.0, b"")])]


def outcome_rows(batch_id: str, index: int, run_id: str, state: "RunState.ValueType", outcome: BatchItem) -> Inserts:
    """The row of an item whose run has ended."""
    return [(_BATCH_RUNS, [(batch_id, index, run_id, state, time.time(), outcome.SerializeToString())])]


def invalid_item_rows(batch_id: str, invalid: Mapping[int, Failure]) -> Inserts:
    """Rows of items that cannot run, by index; none without items."""
    now = time.time()
    rows = [
        (batch_id, index, "", RUN_STATE_FAILED, now, BatchItem(failure=failure).SerializeToString())
        for index, failure in invalid.items()
    ]
    return [(_BATCH_RUNS, rows)] if rows else []


def queued_item(values: Sequence[Any]) -> Item:
    """Converts the row of an item to run; an item that cannot be decoded fails alone."""
    index, name, inputs = values
    stored = decode(NewItem, inputs)
    if stored is None:
        return Item(index, name, (), _UNREADABLE)
    return Item(index, name, stored.inputs, stored.failure if stored.HasField("failure") else None)


def listed_item(values: Sequence[Any]) -> BatchItem:
    """Converts the row of an item and its outcome for a list; without an outcome if that cannot be decoded."""
    index, name, inputs, run_id, state, outcome = values
    item = decode(BatchItem, outcome or b"") or BatchItem(failure=_UNREADABLE)
    item.index, item.name, item.run_id, item.state = index, name, run_id, state
    item.inputs.extend((decode(NewItem, inputs or b"") or NewItem()).inputs)
    return item


def batch_counts(total: int, found: Counts) -> BatchCounts:
    """Number of a batch's items by state, as callers see them."""
    started = sum(count for state, count in found.by_state.items() if state != RUN_STATE_QUEUED)
    return BatchCounts(
        total=total,
        waiting=total - started,
        running=found[RUN_STATE_RUNNING],
        completed=found[RUN_STATE_COMPLETED],
        incomplete=found[RUN_STATE_INCOMPLETE],
        failed=found[RUN_STATE_FAILED],
        cancelled=found[RUN_STATE_CANCELLED],
    )
