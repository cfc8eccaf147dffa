"""What rows of batches and their items are in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from services.orchestrator.journal.row_readers import decoded
from services.orchestrator.journal.tables import ENDED


@dataclass(frozen=True)
class NewBatch:
    """A batch to keep."""

    id: str
    caller: Caller
    spec: BatchSpec
    pipeline: Pipeline
    """Empty if it is yet to be planned."""


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
    """How often it was let run."""
    failed_only: bool
    """Only items that are to run again are run."""
    waiting_for: str
    failure: Failure
    taken_up: float
    """When it was last claimed, in seconds since the epoch; 0: never."""
    is_readable: bool = True
    """False if a part of it cannot be decoded, which is empty here: then it must not be driven."""

    @property
    def over(self) -> bool:
        return self.state in ENDED

    @property
    def planned(self) -> bool:
        return bool(self.pipeline.plan.tasks)


@dataclass(frozen=True)
class Claimed:
    """A batch to drive, and the fence under which that is written."""

    fence: int
    batch: BatchRow


@dataclass(frozen=True)
class Item:
    """An item to run."""

    index: int
    name: str
    inputs: Sequence[NamedValue]
    failure: Failure | None = None
    """Why it cannot be run."""


@dataclass(frozen=True)
class Counts:
    """Items by where they stand, those that wait left out."""

    by_state: "Mapping[RunState.ValueType, int]"
    late: int
    """Runs that have ended of late."""

    def __getitem__(self, state: "RunState.ValueType") -> int:
        return self.by_state.get(state, 0)


_UNREADABLE = Failure(
    reason="CORRUPT",
    code="DATA_LOSS",
    message="what is stored of this item cannot be read",
    remedy="send the item again in a new batch",
)


def batch_row(values: Sequence[Any]) -> BatchRow:
    """A batch, of the columns of batch_statements.COLUMNS."""
    id_, tenant, state, created, ended, total, *stored, round_, failed_only, waiting, failed, taken_up = values
    caller, spec = decoded(Caller, stored[0]), decoded(BatchSpec, stored[1])
    pipeline, failure = decoded(Pipeline, stored[2]), decoded(Failure, failed)
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
        taken_up=taken_up,
        is_readable=None not in (caller, spec, pipeline, failure),
    )


def queued(values: Sequence[Any]) -> Item:
    """An item that is to run; one that cannot be decoded fails alone."""
    index, name, inputs = values
    stored = decoded(NewItem, inputs)
    if stored is None:
        return Item(index, name, (), _UNREADABLE)
    return Item(index, name, stored.inputs, stored.failure if stored.HasField("failure") else None)


def listed(values: Sequence[Any]) -> BatchItem:
    """An item with what became of it, as a list shows it; empty where that cannot be decoded."""
    index, name, inputs, run_id, state, outcome = values
    item = decoded(BatchItem, outcome or b"") or BatchItem(failure=_UNREADABLE)
    item.index, item.name, item.run_id, item.state = index, name, run_id, state
    item.inputs.extend((decoded(NewItem, inputs or b"") or NewItem()).inputs)
    return item


def counts(rows: Sequence[Sequence[Any]]) -> Counts:
    """What batch_statements.COUNTS gives."""
    return Counts({state: count for state, count, _ in rows}, sum(late for *_, late in rows))


def counted(total: int, found: Counts) -> BatchCounts:
    """How many of a batch's items stand where, as callers are told."""
    begun = sum(count for state, count in found.by_state.items() if state != RUN_STATE_QUEUED)
    return BatchCounts(
        total=total,
        waiting=total - begun,
        running=found[RUN_STATE_RUNNING],
        completed=found[RUN_STATE_COMPLETED],
        incomplete=found[RUN_STATE_INCOMPLETE],
        failed=found[RUN_STATE_FAILED],
        cancelled=found[RUN_STATE_CANCELLED],
    )
