"""One batch from its claim to its end: planned once, its items begun in order, a bounded number of them at once."""

import asyncio

import structlog

from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import (
    RUN_MODE_PLAN,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    BatchPosition,
    RunSpec,
    RunState,
)
from services.common import call_context
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, Overloaded
from services.common.supervision import supervise
from services.orchestrator.batches.items import caller_of
from services.orchestrator.batches.runner import Course, Means
from services.orchestrator.experts.client import to_failure
from services.orchestrator.journal.batch_rows import BatchRow, Claimed
from services.orchestrator.runs.run_log import CANCELLED

log = structlog.get_logger(__name__)


class Driver:
    """Drives batches by shared means."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def drive(self, claimed: Claimed) -> None:
        """Takes a batch to its end; being cancelled leaves it for another owner, as does a journal that is not there.

        Raises:
            LeaseLost: another owner drives it.
            Unavailable: the journal does not answer.
        """
        batch = claimed.batch
        with call_context.use_caller(caller_of(batch)):
            if not batch.planned and (failure := await self._plan(claimed)):
                cancelled = failure.reason == CANCELLED.reason
                state, why = (RUN_STATE_CANCELLED, None) if cancelled else (RUN_STATE_FAILED, failure)
                await self._means.kept.end(claimed, state, why)
                return
            await Course(self._means, claimed).run()
            await self._means.kept.end(claimed, await self._ending(claimed), None)
        log.info("batch ended", batch_id=batch.id)

    async def _plan(self, claimed: Claimed) -> Failure | None:
        """Has the first item that can be run planned, as a run of its own; gives why there is no plan."""
        batch = claimed.batch
        try:
            if not (run_id := await self._accepted(await self._to_plan(batch), batch.id)):
                return CANCELLED
            await self._finished(run_id, batch.id)
            run = await self._means.runs.get(run_id)
            if run.state != RUN_STATE_COMPLETED:
                return run.failure
            pipeline = await self._means.pipelines.of_run(run_id)
        except (InvalidRequest, FailedPrecondition, NotFound) as error:
            return to_failure(error)
        await self._means.kept.planned(claimed, pipeline)
        batch.pipeline.CopyFrom(pipeline)
        return None

    async def _to_plan(self, batch: BatchRow) -> RunSpec:
        """What the run that plans is asked to do.

        Raises:
            InvalidRequest: no item can be run.
        """
        async for page in self._means.pages(batch):
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
        raise InvalidRequest("no item can be run", reason="EMPTY", port="items", remedy="send one that can")

    async def _accepted(self, spec: RunSpec, batch_id: str) -> str:
        """The run that plans, once there is a place for it; empty if the batch is to stop before."""
        while not await self._means.kept.wish(batch_id):
            try:
                return await self._means.runs.accept(spec, BatchPosition(batch_id=batch_id))
            except Overloaded as error:
                await asyncio.sleep(error.retry_after.total_seconds() if error.retry_after else 1.0)
        return ""

    async def _finished(self, run_id: str, batch_id: str) -> None:
        """Waits for the end of the run that plans; a command to cancel the batch cancels it, once."""

        async def heed() -> None:
            await self._means.stop_wished(batch_id)
            await self._means.runs.cancel(run_id)

        heeding = asyncio.create_task(supervise(heed, name="batch cancellation"), name=f"heed-{batch_id}")
        try:
            await self._means.runs.finished(run_id)
        finally:
            heeding.cancel()

    async def _ending(self, claimed: Claimed) -> "RunState.ValueType":
        counts = await self._means.kept.counts(claimed.batch.id, 0.0)
        total = claimed.batch.total
        if counts[RUN_STATE_COMPLETED] == total:
            return RUN_STATE_COMPLETED
        begun = sum(counts.by_state.values()) - counts[RUN_STATE_QUEUED]
        if begun < total or counts[RUN_STATE_CANCELLED]:
            return RUN_STATE_CANCELLED
        usable = counts[RUN_STATE_COMPLETED] + counts[RUN_STATE_INCOMPLETE]
        return RUN_STATE_INCOMPLETE if usable else RUN_STATE_FAILED
