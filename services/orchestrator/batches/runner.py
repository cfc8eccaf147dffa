"""Runs the items of a planned batch in their order, a limited number of them at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from protos.hugginggpt.v1.failure_pb2 import Failure
from services.common import call_context
from services.common.errors import DeadlineExceeded, FailedPrecondition, InvalidRequest, NotFound, Unavailable
from services.orchestrator.batches.items import position_of, spec_of
from services.orchestrator.batches.slots import BatchSlots
from services.orchestrator.experts.client import to_failure
from services.orchestrator.journal.batch_rows import BatchRow, Claimed, Item
from services.orchestrator.journal.batches import CHANGED, BatchStore
from services.orchestrator.journal.runs import NewRun
from services.orchestrator.pipelines import parameters
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.runs import acceptance
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.selection import LOOK_SECONDS, CandidateCache
from services.orchestrator.runs.service import RunService

log = structlog.get_logger(__name__)

PAGE, PAGE_BYTES = 100, 1024 * 1024
"""Items and bytes read at a time: each active batch has so much in memory."""
START_LIMIT = 4
"""Items started in one transaction."""


@dataclass(frozen=True)
class BatchDependencies:
    """What all batches of this process share."""

    store: BatchStore
    runs: RunService
    pipelines: PipelineService
    catalogue: CandidateCache
    slots: BatchSlots
    run_seconds: float
    """Longest run time of an item."""
    waiting: set[str] = field(default_factory=set)
    """IDs of batches that start no items at the moment, because a task or model is not offered."""

    async def pages(self, batch: BatchRow) -> AsyncIterator[list[Item]]:
        """Items of a batch to run, in order."""
        after = 0
        while items := await self.store.next_items(batch, after, PAGE, PAGE_BYTES):
            after = items[-1].index
            yield items

    async def wait_for_cancel(self, batch_id: str) -> None:
        """Waits for a command to cancel a batch."""
        with self.runs.notifier.subscribed(batch_id) as changed:
            while not await self.store.is_cancelled(batch_id):
                await changed.wait()
                changed.clear()


class BatchRunner:
    """Runs the items of one batch.

    Args:
        shared: by all batches.
        claimed: the batch.
    """

    def __init__(self, shared: BatchDependencies, claimed: Claimed) -> None:
        self._shared = shared
        self._claimed, self._batch = claimed, claimed.batch
        self._max_active = self._batch.spec.max_at_once or shared.slots.limit
        self._active: set[str] = set()
        self._run_ended = asyncio.Event()
        self._waiting_reason = self._batch.waiting_for
        self._overload = ""
        """The overload that delayed the last items, if there was one."""
        self._watching = asyncio.TaskGroup()
        self._write: asyncio.Future[None] | None = None
        self._is_closed = False

    async def run(self) -> None:
        """Starts the items and waits for their ends; stops early on a command to cancel the batch.

        Raises:
            ExceptionGroup: of LeaseLost and Unavailable.
        """
        try:
            async with self._watching, asyncio.TaskGroup() as group:  # an error while watching also stops new items
                for run_id in await self._shared.store.active_runs(self._batch.id):
                    self._watch(run_id, slots=0)
                starting = group.create_task(self._start_all(), name=f"start-{self._batch.id}")
                cancelling = group.create_task(self._cancel_on_command(starting), name=f"cancel-{self._batch.id}")
                await self._wait_started(starting)
                while self._active:
                    await self._wait_for_end()
                cancelling.cancel()
        finally:
            self._is_closed = True
            self._shared.waiting.discard(self._batch.id)

    async def _start_all(self) -> None:
        async for items in self._shared.pages(self._batch):
            while items:
                await self._wait_until_available()
                count = await self._acquire_slots()
                await self._start_items(items[:count], count)
                del items[:count]
        await self._set_waiting_reason("")

    async def _wait_started(self, starting: "asyncio.Task[None]") -> None:
        """Waits until no more items start."""
        await asyncio.wait([starting])
        if self._write:
            await asyncio.wait([self._write])

    async def _start_items(self, items: Sequence[Item], slots: int) -> None:
        """Stores and starts runs of items; an invalid item fails without a run."""
        runs: list[NewRun] = []
        invalid: dict[int, Failure] = {}
        caller = call_context.current()
        for item in items:
            if item.failure:
                invalid[item.index] = item.failure
                continue
            try:
                parameters.check(self._batch.pipeline.inputs, item.inputs)
            except InvalidRequest as error:
                invalid[item.index] = to_failure(error)
            else:
                spec, position = spec_of(self._batch, item), position_of(self._batch, item)
                runs.append(acceptance.new_run(spec, caller, None, "", self._shared.run_seconds, batch=position))
        self._shared.slots.release(self._batch.caller, slots - len(runs))
        self._write = self._shared.store.add_runs(self._claimed, runs, invalid)
        self._write.add_done_callback(partial(self._start_runs, runs))
        await asyncio.shield(self._write)

    def _start_runs(self, runs: Sequence[NewRun], write: "asyncio.Future[None]") -> None:
        if write.exception() or self._is_closed:
            self._shared.slots.release(self._batch.caller, len(runs))
        for run in runs if not write.exception() else ():
            if self._is_closed:
                self._shared.runs.start(run)
            else:
                self._active.add(run.id)
                self._shared.runs.start(run, self._released)

    def _released(self, run: RunLog) -> None:
        """Handles the end of an item's run in this process: the run has ended, or another process continues it."""
        if run.feed.has_ended or self._is_closed:
            self._ended(run.id, slots=1)
        else:
            self._watch(run.id, slots=1)

    def _ended(self, run_id: str, *, slots: int) -> None:
        self._shared.slots.release(self._batch.caller, slots)
        self._active.discard(run_id)
        self._run_ended.set()

    def _watch(self, run_id: str, *, slots: int) -> None:
        self._active.add(run_id)
        self._watching.create_task(self._wait_until_ended(run_id, slots), name=f"watch-{run_id}")

    async def _wait_until_ended(self, run_id: str, slots: int) -> None:
        try:
            with contextlib.suppress(NotFound):  # it was deleted as soon as it had ended
                await self._shared.runs.wait_until_ended(run_id)
        finally:
            self._ended(run_id, slots=slots)

    async def _acquire_slots(self) -> int:
        """Waits for slots, of the batch and of the process; returns how many it holds then."""
        while len(self._active) >= self._max_active:
            await self._wait_for_end()
        self._overload = ""
        count = min(self._max_active - len(self._active), START_LIMIT)
        return await self._shared.slots.acquire(self._batch.caller, count, self._report_overload)

    async def _report_overload(self, reason: str) -> None:
        self._overload = reason
        await self._set_waiting_reason(reason)

    async def _wait_for_end(self) -> None:
        self._run_ended.clear()
        await self._run_ended.wait()

    async def _wait_until_available(self) -> None:
        """Waits until all tasks of the plan are offered."""
        spec = self._batch.spec
        while True:
            try:
                await self._shared.pipelines.builder.check_available(
                    self._batch.pipeline.plan, spec.inference_mode, spec.constraints
                )
            except (FailedPrecondition, Unavailable, DeadlineExceeded) as error:
                await self._wait_for(f"{error.message}; {error.remedy}" if error.remedy else error.message)
                await self._shared.catalogue.wait_for_change(LOOK_SECONDS)
            else:
                self._shared.waiting.discard(self._batch.id)
                await self._set_waiting_reason(self._overload)
                return

    async def _wait_for(self, reason: str) -> None:
        await self._set_waiting_reason(reason)
        self._shared.waiting.add(self._batch.id)
        self._shared.runs.notifier.notify((CHANGED,))  # another batch may be claimed meanwhile

    async def _set_waiting_reason(self, reason: str) -> None:
        """Stores why no new item starts at the moment; empty: items start."""
        if reason == self._waiting_reason:
            return
        await self._shared.store.set_waiting_reason(self._claimed, reason)
        self._waiting_reason = reason
        if reason:
            log.warning("batch items delayed", batch_id=self._batch.id, reason=reason)

    async def _cancel_on_command(self, starting: "asyncio.Task[None]") -> None:
        """Waits for a cancel command, then starts no more items and cancels the active ones."""
        await self._shared.wait_for_cancel(self._batch.id)
        starting.cancel()
        await self._wait_started(starting)
        for run_id in list(self._active):
            await self._shared.runs.cancel(run_id)
