"""Items of batches: their inputs, and the state and outcome of their runs."""

# ruff: noqa: S608  # SQL is composed of constants; values are always parameters

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.rpc import code_pb2

from protos.hugginggpt.v1.artifact_pb2 import NamedValue
from protos.hugginggpt.v1.batch_pb2 import BatchCounts, BatchItem, NewItem
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RunState,
)
from services.common.database import Database, InsertInto, Operation, Query
from services.orchestrator.journal.artifacts import hold_rows
from services.orchestrator.journal.store import NOTHING, Inserts, Page, decode, paged, single_query, to_page

T = TypeVar("T")

_ITEMS = InsertInto("batch_items", {"batch_id": "text", "item_index": "bigint", "name": "text", "inputs": "bytea"})

_COUNTS = (
    "SELECT state, COUNT(*), SUM(CASE WHEN ended > ? AND run_id != '' THEN 1 ELSE 0 END) FROM batch_runs"
    " WHERE batch_id = ? GROUP BY state"
)
_ACTIVE_RUNS = f"SELECT run_id FROM batch_runs WHERE batch_id = ? AND state = {RUN_STATE_RUNNING}"
_WITH_RUNS = (
    " LEFT JOIN batch_runs ON batch_runs.batch_id = batch_items.batch_id"
    " AND batch_runs.item_index = batch_items.item_index"
)
_FROM_ITEMS = f" FROM batch_items{_WITH_RUNS} WHERE batch_items.batch_id = ? AND batch_items.item_index > ?"
_STATE = f"COALESCE(batch_runs.state, {RUN_STATE_QUEUED})"
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

_UNREADABLE = Failure(
    reason="CORRUPT",
    code=code_pb2.DATA_LOSS,
    message="the stored data of this item cannot be read",
    remedy="send the item again in a new batch",
)


def _queued(state: str) -> str:
    """Items to run, up to a number of bytes, but at least one."""
    return (
        f"WITH found AS (SELECT batch_items.item_index AS row_key, LENGTH(inputs) AS size{_FROM_ITEMS}"
        f" AND {state} = {RUN_STATE_QUEUED} ORDER BY row_key LIMIT ?),"
        " measured AS (SELECT row_key, SUM(size) OVER (ORDER BY row_key) - size AS size_before FROM found)"
        " SELECT item_index, name, inputs FROM measured JOIN batch_items ON batch_id = ? AND item_index = row_key"
        " WHERE size_before < ? ORDER BY item_index"
    )


_NEXT = _queued(_STATE)
_NEXT_REQUEUED = _queued("batch_runs.state")
"""Only items that have run before."""


def _list(states: Collection[int], *, inputs: bool) -> str:
    """A page of a batch's items with their outcomes, with or without their inputs."""
    in_states = f" AND {_STATE} IN ({', '.join('?' * len(states))})" if states else ""
    input_column, size = ("inputs", "LENGTH(inputs) + ") if inputs else ("NULL", "")
    return paged(
        f"SELECT batch_items.item_index AS row_key, {size}COALESCE(LENGTH(outcome), 0) AS size{_FROM_ITEMS}{in_states}",
        "row_key",
        f"SELECT found_rows, batch_items.item_index, name, {input_column}, COALESCE(run_id, ''), {_STATE}, outcome"
        f" FROM measured JOIN batch_items ON batch_items.batch_id = ? AND batch_items.item_index = row_key{_WITH_RUNS}",
    )


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


class BatchItemStore:
    """Items of the batches of all tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, batch_id: str, tenant: str, first: int, items: Sequence[NewItem], invalid: Mapping[int, Failure]
    ) -> "asyncio.Future[None]":
        """Stores items of a batch, numbered from `first`; items in `invalid` have failed."""
        rows = [
            (batch_id, index, item.name, _without_name(item).SerializeToString())
            for index, item in enumerate(items, first)
        ]
        inserts: Inserts = [
            *([(_ITEMS, rows)] if rows else []),
            *hold_rows(tenant, batch_id, items),
            *invalid_item_rows(batch_id, invalid),
        ]
        return self._write(single_query(Query(NOTHING, (), inserts), lambda _: None))

    async def counts(self, batch_id: str, since: float) -> Counts:
        """Number of items by state, and of runs that ended after `since`."""
        found = await self._database.read(_COUNTS, since, batch_id)
        return Counts({state: count for state, count, _ in found}, sum(recent for *_, recent in found))

    async def items(
        self,
        batch_id: str,
        after: int,
        limit: int,
        states: "Collection[RunState.ValueType]" = (),
        *,
        inputs: bool = True,
    ) -> Page[BatchItem]:
        """Items after an index, in order, with their outcomes, and with or without their inputs."""
        values = (batch_id, after, *states, limit + 1, batch_id, limit)
        return to_page(await self._database.read(_list(states, inputs=inputs), *values), _listed_item)

    async def next_items(
        self, batch_id: str, after: int, limit: int, max_bytes: int, *, failed_only: bool = False
    ) -> list[Item]:
        """Items to run after an index, in order, up to `max_bytes`, but at least one.

        Args:
            batch_id: ID of the batch.
            after: index of the last item before.
            limit: number of items.
            max_bytes: of their inputs.
            failed_only: only items that were queued again by a resume.
        """
        query = _NEXT_REQUEUED if failed_only else _NEXT
        found = await self._database.read(query, batch_id, after, limit, batch_id, max_bytes)
        return [_queued_item(values) for values in found]

    async def active_runs(self, batch_id: str) -> list[str]:
        """IDs of items' runs that have started and not ended."""
        return [run_id for (run_id,) in await self._database.read(_ACTIVE_RUNS, batch_id)]

    def _write(self, operation: Operation[T], topic: str = "") -> "asyncio.Future[T]":
        return self._database.write(operation, topic)


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


def _queued_item(values: Sequence[Any]) -> Item:
    """Converts the row of an item to run; an item that cannot be decoded fails alone."""
    index, name, inputs = values
    stored = decode(NewItem, inputs)
    if stored is None:
        return Item(index, name, (), _UNREADABLE)
    return Item(index, name, stored.inputs, stored.failure if stored.HasField("failure") else None)


def _listed_item(values: Sequence[Any]) -> BatchItem:
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


def _without_name(item: NewItem) -> NewItem:
    """The item without its name, which has a column of its own."""
    return NewItem(inputs=item.inputs, failure=item.failure if item.HasField("failure") else None)
