"""What rows of batches and their items are in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protos.hugginggpt.v1.types_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    BatchCounts,
    BatchItem,
    BatchSpec,
    Caller,
    Failure,
    NamedValue,
    NewItem,
    Pipeline,
    RunState,
)
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


def batch_row(values: Sequence[Any]) -> BatchRow:
    """A batch, of the columns of batch_statements.COLUMNS."""
    id_, tenant, state, created, ended, total, caller, spec, pipeline, round_, failed_only, *more = values
    waiting, failure, taken_up = more
    return BatchRow(
        id=id_,
        tenant=tenant,
        state=state,
        created=created,
        ended=ended,
        total=total,
        caller=Caller.FromString(caller),
        spec=BatchSpec.FromString(spec),
        pipeline=Pipeline.FromString(pipeline),
        round=round_,
        failed_only=bool(failed_only),
        waiting_for=waiting,
        failure=Failure.FromString(failure),
        taken_up=taken_up,
    )


def queued(values: Sequence[Any]) -> Item:
    """An item that is to run."""
    index, name, inputs = values
    kept = NewItem.FromString(inputs)
    return Item(index, name, kept.inputs, kept.failure if kept.HasField("failure") else None)


def listed(values: Sequence[Any]) -> BatchItem:
    """An item with what became of it, as a list shows it."""
    index, name, inputs, run_id, state, outcome = values
    item = BatchItem.FromString(outcome or b"")
    item.index, item.name, item.run_id, item.state = index, name, run_id, state
    item.inputs.extend(NewItem.FromString(inputs or b"").inputs)
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
