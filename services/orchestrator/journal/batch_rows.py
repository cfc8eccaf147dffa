"""Rows of batches and their items as Python objects."""

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
from services.orchestrator.journal.row_readers import decode


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
    """Converts a row with the columns batch_statements.COLUMNS."""
    id_, tenant, state, created, ended, total, *stored, round_, failed_only, waiting, failed, claimed_at = values
    caller, spec = decode(Caller, stored[0]), decode(BatchSpec, stored[1])
    pipeline, failure = decode(Pipeline, stored[2]), decode(Failure, failed)
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
        waiting_for=waiting,
        failure=failure or Failure(),
        claimed_at=claimed_at,
        is_readable=None not in (caller, spec, pipeline, failure),
    )


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


def counts(rows: Sequence[Sequence[Any]]) -> Counts:
    """Converts the rows of batch_statements.COUNTS."""
    return Counts({state: count for state, count, _ in rows}, sum(recent for *_, recent in rows))


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
