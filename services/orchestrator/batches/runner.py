"""Runs one batch from its claim to its end.

The methods of BatchRunner are in the order in which a batch passes them: it is planned, its items start a few at a
time, and their runs end. Meanwhile one task waits for a command to cancel the batch, and one reports what it waits for.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import (
    RUN_MODE_PLAN,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    BatchPosition,
    RunSpec,
    RunState,
)
from services.common import call_context
from services.common.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    Overloaded,
    Unavailable,
    to_failure,
)
from services.common.supervision import supervise
from services.orchestrator.batches import items
from services.orchestrator.batches.slots import KEY_LIMIT, SLOTS_TAKEN, BatchSlots
from services.orchestrator.journal import LeaseLost
from services.orchestrator.journal.batch_items import Item
from services.orchestrator.journal.batches import CHANGED, BatchRow, BatchStore, Claimed
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.notifier import ChangeNotifier
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.runs.run_log import CANCELLED, RunLog
from services.orchestrator.runs.selector_client import LOOK_SECONDS, CandidateCache
from services.orchestrator.runs.service import RunService

log = structlog.get_logger(__name__)

START_LIMIT = 8
"""Items started in one transaction."""

REPORT_SECONDS = 1.0
"""Interval at which a batch's waiting reason is updated; a wait is reported after one or two of them."""
JOURNAL_SLOW = "the journal is slow: items start once their runs are stored"


@dataclass(frozen=True)
class BatchDependencies:
    """What all batches of this process share."""

    store: BatchStore
    runs: RunService
    pipelines: PipelineService
    catalogue: CandidateCache
    notifier: ChangeNotifier
    slots: BatchSlots
    run_seconds: float
    """Longest run time of an item."""
    waiting_reasons: dict[str, str] = field(default_factory=dict)
    """Why the batches that run here wait, by ID; the journal's rows have these reasons a little later."""
    blocked: set[str] = field(default_factory=set)
    """IDs of batches that start no items because a task or model is not offered: others are claimed in their place."""


class BatchExecutor:
    """Executes claimed batches, each by a BatchRunner, for the lease manager."""

    def __init__(self, shared: BatchDependencies) -> None:
        self._shared = shared

    async def execute(self, claimed: Claimed) -> None:
        """Executes a batch to its end; if cancelled, or without a journal, leaves it for another owner."""
        self._shared.waiting_reasons[claimed.id] = claimed.batch.waiting_for
        try:
            with call_context.use_caller(items.caller_of(claimed.batch)):
                await BatchRunner(self._shared, claimed).run()
        except* LeaseLost:
            log.warning("lease lost", batch_id=claimed.id)
        except* Unavailable as errors:
            log.warning("released: dependency unavailable", batch_id=claimed.id, error=str(errors.exceptions[0]))
        finally:
            del self._shared.waiting_reasons[claimed.id]


class BatchRunner:
    """Runs one claimed batch.

    Args:
        shared: by all batches.
        claimed: the batch.
    """

    def __init__(self, shared: BatchDependencies, claimed: Claimed) -> None:
        self._shared, self._store, self._runs = shared, shared.store, shared.runs
        self._claimed, self._batch = claimed, claimed.batch
        self._max_active = self._batch.spec.max_at_once or shared.slots.limit
        self._active: set[str] = set()
        """IDs of items' runs that have started and not ended."""
        self._run_ended = asyncio.Event()
        self._watching = asyncio.TaskGroup()
        self._write: asyncio.Future[None] | None = None
        """Stores the runs of the last items that started."""
        self._is_closed = False
        self._waiting_for = ""
        """Why no item starts, or items start slowly; empty: neither, or its items themselves take so long."""

    async def run(self) -> None:
        """Runs the batch to its end.

        Raises:
            ExceptionGroup: of LeaseLost and Unavailable.
        """
        async with asyncio.TaskGroup() as group:
            reporting = group.create_task(self._report_waiting(), name=f"waiting-{self._batch.id}")
            try:
                state, failure = await self._run()
            finally:
                reporting.cancel()
        await self._store.end(self._claimed, state, failure)
        log.info("batch ended", batch_id=self._batch.id, state=RunState.Name(state))

    async def _run(self) -> "tuple[RunState.ValueType, Failure | None]":
        """Plans the batch, if necessary, and runs its items; returns the batch's final state and failure."""
        if not self._batch.is_planned:
            planner = BatchPlanner(self._shared, self._set_waiting_for)
            if failure := await planner.plan(self._claimed):
                is_cancelled = failure.reason == CANCELLED.reason
                return (RUN_STATE_CANCELLED, None) if is_cancelled else (RUN_STATE_FAILED, failure)
        await self._run_items()
        counts = await self._store.counts(self._batch.id, 0.0)
        return items.final_state(counts, self._batch.total), None

    # ------------------------------------------------------------ starting items

    async def _run_items(self) -> None:
        """Starts the items and waits until their runs have ended; stops early on a command to cancel the batch."""
        try:
            async with self._watching, asyncio.TaskGroup() as group:  # an error while watching also stops new items
                for run_id in await self._store.active_runs(self._batch.id):
                    self._watch(run_id, slots=0)
                starting = group.create_task(self._start_all(), name=f"start-{self._batch.id}")
                cancelling = group.create_task(self._cancel_on_command(starting), name=f"cancel-{self._batch.id}")
                await self._wait_started(starting)
                while self._active:
                    await self._wait_for_an_item()
                cancelling.cancel()
        finally:
            self._is_closed = True
            self._shared.blocked.discard(self._batch.id)

    async def _start_all(self) -> None:
        """Starts the items in their order, as the limits allow."""
        async for page in items.pages(self._store, self._batch):
            while page:
                await self._wait_until_available()
                count = await self._acquire_slots()
                await self._start_items(page[:count], count)
                del page[:count]

    async def _wait_until_available(self) -> None:
        """Waits until all tasks of the plan are offered."""
        spec, blocked = self._batch.spec, self._shared.blocked
        while True:
            try:
                await self._shared.pipelines.builder.check_available(
                    self._batch.pipeline.plan, spec.inference_mode, spec.constraints
                )
            except (FailedPrecondition, Unavailable, DeadlineExceeded) as error:
                self._waiting_for = f"{error.message}; {error.remedy}" if error.remedy else error.message
                blocked.add(self._batch.id)
                self._shared.notifier.notify((CHANGED,))  # another batch may be claimed meanwhile
                await self._shared.catalogue.wait_for_change(LOOK_SECONDS)
            else:
                break
        if self._batch.id in blocked:
            blocked.remove(self._batch.id)
            self._waiting_for = ""

    async def _acquire_slots(self) -> int:
        """Waits for slots, of the batch and of the process; returns how many it holds then."""
        while len(self._active) >= self._max_active:
            self._waiting_for = ""
            await self._wait_for_an_item()
        count = min(self._max_active - len(self._active), START_LIMIT)
        return await self._shared.slots.acquire(self._batch.caller, count, self._set_waiting_for)

    def _set_waiting_for(self, reason: str) -> None:
        has_its_share = self._active and reason in {KEY_LIMIT, SLOTS_TAKEN}  # of the slots
        self._waiting_for = "" if has_its_share else reason

    async def _start_items(self, page: Sequence[Item], slots: int) -> None:
        """Stores and starts runs of items; an invalid item fails without a run."""
        runs, invalid = items.new_runs(self._batch, page, self._shared.run_seconds)
        self._shared.slots.release(self._batch.caller, slots - len(runs))
        self._write = self._store.add_runs(self._claimed, runs, invalid)
        self._write.add_done_callback(partial(self._start_runs, runs))
        await asyncio.shield(self._write)

    def _start_runs(self, runs: Sequence[NewRun], write: "asyncio.Future[None]") -> None:
        if write.exception() or self._is_closed:
            self._shared.slots.release(self._batch.caller, len(runs))
        for run in runs if not write.exception() else ():
            if self._is_closed:
                self._runs.start(run)
            else:
                self._active.add(run.id)
                self._runs.start(run, self._released)

    async def _wait_started(self, starting: "asyncio.Task[None]") -> None:
        """Waits until no more items start."""
        await asyncio.wait([starting])
        self._waiting_for = ""
        if self._write:
            await asyncio.wait([self._write])

    # ------------------------------------------------------------ ends of items

    def _released(self, run: RunLog) -> None:
        """Handles the end of an item's run in this process: the run has ended, or another process continues it."""
        if run.feed.has_ended or self._is_closed:
            self._ended(run.id, slots=1)
        else:
            self._watch(run.id, slots=1)

    def _watch(self, run_id: str, *, slots: int) -> None:
        """Waits for the end of a run that another process may execute."""
        self._active.add(run_id)
        self._watching.create_task(self._watch_item(run_id, slots), name=f"watch-{run_id}")

    async def _watch_item(self, run_id: str, slots: int) -> None:
        try:
            with contextlib.suppress(NotFound):  # it was deleted as soon as it had ended
                await self._runs.wait_until_ended(run_id)
        finally:
            self._ended(run_id, slots=slots)

    def _ended(self, run_id: str, *, slots: int) -> None:
        self._shared.slots.release(self._batch.caller, slots)
        self._active.discard(run_id)
        self._run_ended.set()

    async def _wait_for_an_item(self) -> None:
        self._run_ended.clear()
        await self._run_ended.wait()

    # ------------------------------------------------------------ commands and reports

    async def _cancel_on_command(self, starting: "asyncio.Task[None]") -> None:
        """Waits for a cancel command, then starts no more items and cancels the active ones."""
        await wait_for_cancel(self._batch.id, self._store, self._shared.notifier)
        starting.cancel()
        await self._wait_started(starting)
        for run_id in list(self._active):
            await self._runs.cancel(run_id)

    async def _report_waiting(self) -> None:
        """Reports why the batch waits, once it has waited for REPORT_SECONDS, and clears the reason after the wait."""
        stored = reason = self._batch.waiting_for
        write = self._write
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            before, reason = reason, self._waiting_reason(write)
            write, reported = self._write, reason if before else ""
            self._shared.waiting_reasons[self._batch.id] = reported
            if reported == stored:
                continue
            try:
                await self._store.set_waiting_reason(self._claimed, reported)
            except LeaseLost:
                raise
            except Unavailable:  # the reason is stored once the journal is available
                continue
            stored = reported
            if reported:
                log.warning("batch items delayed", batch_id=self._batch.id, reason=reported)

    def _waiting_reason(self, last_write: "asyncio.Future[None] | None") -> str:
        """Why no item starts or, if all items have started, why none makes progress.

        Args:
            last_write: the write that was the last one a second ago.
        """
        if self._write and self._write is last_write and not self._write.done():
            return JOURNAL_SLOW
        return self._waiting_for or self._items_waiting_reason()

    def _items_waiting_reason(self) -> str:
        """Why all active items wait; empty if one makes progress or runs in another process."""
        reason = ""
        for run_id in self._active:
            run = self._runs.active_run(run_id)
            if not run or not (reason := JOURNAL_SLOW if run.is_behind else items.waiting_reason(run.fold)):
                return ""
        return reason


class BatchPlanner:
    """Plans a batch once, on its first valid item, in a run of its own.

    Args:
        shared: by all batches.
        report: called with the reason while the run that plans has to wait; with "" when it has started.
    """

    def __init__(self, shared: BatchDependencies, report: Callable[[str], None]) -> None:
        self._store = shared.store
        self._runs = shared.runs
        self._notifier = shared.notifier
        self._builder = shared.pipelines.builder
        self._report = report

    async def plan(self, claimed: Claimed) -> Failure | None:
        """Plans a batch and stores its pipeline; returns the failure if there is no plan.

        Raises:
            LeaseLost: another orchestrator owns the batch.
            Unavailable: the journal is unavailable.
        """
        batch = claimed.batch
        try:
            if not (run_id := await self._start(await self._spec(batch), batch.id)):
                return CANCELLED
            await self._wait_for_planning(run_id, batch.id)
            run = await self._runs.get(run_id)
            if run.state != RUN_STATE_COMPLETED:
                return run.failure
            pipeline = await self._builder.from_run(run_id)
        except (InvalidRequest, FailedPrecondition, NotFound) as error:
            return to_failure(error)
        await self._store.set_pipeline(claimed, pipeline)
        batch.pipeline.CopyFrom(pipeline)
        return None

    async def _spec(self, batch: BatchRow) -> RunSpec:
        """The request of the run that plans.

        Raises:
            InvalidRequest: no item is valid.
        """
        async for page in items.pages(self._store, batch):
            for item in page:
                if not item.failure:
                    return RunSpec(
                        request=batch.spec.request,
                        inputs=item.inputs,
                        mode=RUN_MODE_PLAN,
                        budget=batch.spec.budget,
                        inference_mode=batch.spec.inference_mode,
                        idempotency_key=f"{batch.id}/{batch.round}",
                    )
        raise InvalidRequest("the batch has no valid item", reason="EMPTY", port="items", remedy="send a valid item")

    async def _start(self, spec: RunSpec, batch_id: str) -> str:
        """Starts the run that plans once a slot is free; returns its ID, or "" if the batch is cancelled before."""
        while not await self._store.is_cancelled(batch_id):
            try:
                run_id = await self._runs.create(spec, BatchPosition(batch_id=batch_id))
            except Overloaded as error:
                self._report(f"the run that plans the batch is not accepted yet: {error.message}")
                await asyncio.sleep(error.retry_after.total_seconds() if error.retry_after else 1.0)
            else:
                self._report("")
                return run_id
        return ""

    async def _wait_for_planning(self, run_id: str, batch_id: str) -> None:
        """Waits until the run that plans has ended; a command to cancel the batch cancels it."""

        async def cancel_on_command() -> None:
            await wait_for_cancel(batch_id, self._store, self._notifier)
            await self._runs.cancel(run_id)

        supervised = supervise(cancel_on_command, name="batch cancellation")
        cancelling = asyncio.create_task(supervised, name=f"cancel-{batch_id}")
        try:
            await self._runs.wait_until_ended(run_id)
        finally:
            cancelling.cancel()


async def wait_for_cancel(batch_id: str, store: BatchStore, notifier: ChangeNotifier) -> None:
    """Waits for a command to cancel a batch."""
    with notifier.subscribed(batch_id) as changed:
        while not await store.is_cancelled(batch_id):
            await changed.wait()
            changed.clear()
