"""A batch that has its plan, while its items run: begun in order, a bounded number of them at once."""

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
from services.orchestrator.batches.slots import Places
from services.orchestrator.experts.client import to_failure
from services.orchestrator.journal.batch_rows import BatchRow, Claimed, Item
from services.orchestrator.journal.batches import CHANGED, KeptBatches
from services.orchestrator.journal.tables import NewRun
from services.orchestrator.pipelines import parameters
from services.orchestrator.pipelines.service import Pipelines
from services.orchestrator.runs import acceptance
from services.orchestrator.runs.candidate_cache import LOOK_SECONDS, Catalogue
from services.orchestrator.runs.run_log import LiveRun
from services.orchestrator.runs.service import Runs

log = structlog.get_logger(__name__)

PAGE, PAGE_BYTES = 100, 1024 * 1024
"""Items read at a time, and how many bytes of them are enough: every batch has so many in memory."""
BUNCH = 4
"""Items begun in one transaction, at most."""


@dataclass(frozen=True)
class Means:
    """What all batches driven here share."""

    kept: KeptBatches
    runs: Runs
    pipelines: Pipelines
    catalogue: Catalogue
    places: Places
    run_seconds: float
    """Most time an item can have."""
    waiting: set[str] = field(default_factory=set)
    """Batches that begin no item at the moment, for what they need is not there."""

    async def pages(self, batch: BatchRow) -> AsyncIterator[list[Item]]:
        """Items of a batch that are to run, in order."""
        after = 0
        while items := await self.kept.next(batch, after, PAGE, PAGE_BYTES):
            after = items[-1].index
            yield items

    async def stop_wished(self, batch_id: str) -> None:
        """Waits until somebody wishes that a batch stops."""
        with self.runs.bells.listening(batch_id) as bell:
            while not await self.kept.wish(batch_id):
                await bell.wait()
                bell.clear()


class Course:
    """Has the items of a batch run.

    Args:
        means: shared with other batches.
        claimed: the batch.
    """

    def __init__(self, means: Means, claimed: Claimed) -> None:
        self._means = means
        self._claimed, self._batch = claimed, claimed.batch
        self._most = self._batch.spec.max_at_once or means.places.most
        self._under_way: set[str] = set()
        self._fewer = asyncio.Event()
        self._waiting_for = self._batch.waiting_for
        self._overload = ""
        """What delayed the last items to start, if an overload did."""
        self._following = asyncio.TaskGroup()
        self._keeping: asyncio.Future[None] | None = None
        self._left = False

    async def run(self) -> None:
        """Begins its items, and waits for their ends; ends early once somebody wishes that it stops.

        Raises:
            ExceptionGroup: of LeaseLost and Unavailable.
        """
        try:
            async with self._following, asyncio.TaskGroup() as group:  # none begins any more where none is followed
                for run_id in await self._means.kept.begun(self._batch.id):
                    self._follow(run_id, places=0)
                beginning = group.create_task(self._begin_all(), name=f"begin-{self._batch.id}")
                heeding = group.create_task(self._heed(beginning), name=f"heed-{self._batch.id}")
                await self._begun(beginning)
                while self._under_way:
                    await self._one_fewer()
                heeding.cancel()
        finally:
            self._left = True
            self._means.waiting.discard(self._batch.id)

    async def _begin_all(self) -> None:
        async for items in self._means.pages(self._batch):
            while items:
                await self._offered()
                taken = await self._room()
                await self._begin(items[:taken], taken)
                del items[:taken]
        await self._show_reason("")

    async def _begun(self, beginning: "asyncio.Task[None]") -> None:
        """Waits until no more items begin."""
        await asyncio.wait([beginning])
        if self._keeping:
            await asyncio.wait([self._keeping])

    async def _begin(self, items: Sequence[Item], taken: int) -> None:
        """Keeps runs for items, and has them driven; where an item cannot be one, that is what became of it."""
        runs: list[NewRun] = []
        misfits: dict[int, Failure] = {}
        who = call_context.current()
        for item in items:
            if item.failure:
                misfits[item.index] = item.failure
                continue
            try:
                parameters.check(self._batch.pipeline.inputs, item.inputs)
            except InvalidRequest as error:
                misfits[item.index] = to_failure(error)
            else:
                spec, position = spec_of(self._batch, item), position_of(self._batch, item)
                runs.append(acceptance.new_run(spec, who, None, "", self._means.run_seconds, batch=position))
        self._means.places.give_back(self._batch.caller, taken - len(runs))
        self._keeping = self._means.kept.admit(self._claimed, runs, misfits)
        self._keeping.add_done_callback(partial(self._start, runs))
        await asyncio.shield(self._keeping)

    def _start(self, runs: Sequence[NewRun], kept: "asyncio.Future[None]") -> None:
        if kept.exception() or self._left:
            self._means.places.give_back(self._batch.caller, len(runs))
        for run in runs if not kept.exception() else ():
            if self._left:
                self._means.runs.begin(run)
            else:
                self._under_way.add(run.id)
                self._means.runs.begin(run, self._left_off)

    def _left_off(self, run: LiveRun) -> None:
        """An item's run is not driven here any more."""
        if run.feed.over or self._left:
            self._ended(run.id, places=1)
        else:
            self._follow(run.id, places=1)

    def _ended(self, run_id: str, *, places: int) -> None:
        self._means.places.give_back(self._batch.caller, places)
        self._under_way.discard(run_id)
        self._fewer.set()

    def _follow(self, run_id: str, *, places: int) -> None:
        self._under_way.add(run_id)
        self._following.create_task(self._followed(run_id, places), name=f"follow-{run_id}")

    async def _followed(self, run_id: str, places: int) -> None:
        try:
            with contextlib.suppress(NotFound):  # it was removed as soon as it had ended
                await self._means.runs.finished(run_id)
        finally:
            self._ended(run_id, places=places)

    async def _room(self) -> int:
        """Waits for places, of its own and of the process; gives how many it then has."""
        while len(self._under_way) >= self._most:
            await self._one_fewer()
        self._overload = ""
        wanted = min(self._most - len(self._under_way), BUNCH)
        return await self._means.places.take(self._batch.caller, wanted, self._report_overload)

    async def _report_overload(self, reason: str) -> None:
        self._overload = reason
        await self._show_reason(reason)

    async def _one_fewer(self) -> None:
        self._fewer.clear()
        await self._fewer.wait()

    async def _offered(self) -> None:
        """Waits until all its tasks can be done."""
        spec = self._batch.spec
        while True:
            try:
                await self._means.pipelines.vouch(self._batch.pipeline.plan, spec.inference_mode, spec.constraints)
            except (FailedPrecondition, Unavailable, DeadlineExceeded) as error:
                await self._wait_for(f"{error.message}; {error.remedy}" if error.remedy else error.message)
                await self._means.catalogue.change(LOOK_SECONDS)
            else:
                self._means.waiting.discard(self._batch.id)
                await self._show_reason(self._overload)
                return

    async def _wait_for(self, reason: str) -> None:
        await self._show_reason(reason)
        self._means.waiting.add(self._batch.id)
        self._means.runs.bells.ring((CHANGED,))  # another may be driven meanwhile

    async def _show_reason(self, reason: str) -> None:
        """Stores why no new item starts at the moment, for the batch's state; empty if items do."""
        if reason == self._waiting_for:
            return
        await self._means.kept.waits(self._claimed, reason)
        self._waiting_for = reason
        if reason:
            log.warning("batch starts no items for now", batch_id=self._batch.id, reason=reason)

    async def _heed(self, beginning: "asyncio.Task[None]") -> None:
        """Waits for the wish that it stops, and then stops what is under way."""
        await self._means.stop_wished(self._batch.id)
        beginning.cancel()
        await self._begun(beginning)
        for run_id in list(self._under_way):
            await self._means.runs.cancel(run_id)
