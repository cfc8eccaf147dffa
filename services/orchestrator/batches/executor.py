"""Executes one batch from its claim to its end: plans it once, then runs its items."""

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
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, Overloaded, Unavailable
from services.common.supervision import supervise
from services.orchestrator.batches.items import caller_of
from services.orchestrator.batches.runner import BatchDependencies, BatchRunner
from services.orchestrator.experts.client import to_failure
from services.orchestrator.journal import LeaseLost
from services.orchestrator.journal.batch_rows import BatchRow, Claimed
from services.orchestrator.runs.run_log import CANCELLED

log = structlog.get_logger(__name__)


class BatchExecutor:
    """Executes batches."""

    def __init__(self, shared: BatchDependencies) -> None:
        self._shared = shared

    async def execute(self, claimed: Claimed) -> None:
        """Executes a batch to its end; if cancelled, or without a journal, leaves it for another owner."""
        try:
            await self._execute(claimed)
        except* LeaseLost:
            log.warning("lease lost", batch_id=claimed.id)
        except* Unavailable as errors:
            log.warning("released: dependency unavailable", batch_id=claimed.id, error=str(errors.exceptions[0]))

    async def _execute(self, claimed: Claimed) -> None:
        batch = claimed.batch
        with call_context.use_caller(caller_of(batch)):
            if not batch.is_planned and (failure := await self._plan(claimed)):
                is_cancelled = failure.reason == CANCELLED.reason
                state, batch_failure = (RUN_STATE_CANCELLED, None) if is_cancelled else (RUN_STATE_FAILED, failure)
                await self._shared.store.end(claimed, state, batch_failure)
                return
            await BatchRunner(self._shared, claimed).run()
            await self._shared.store.end(claimed, await self._final_state(claimed), None)
        log.info("batch ended", batch_id=batch.id)

    async def _plan(self, claimed: Claimed) -> Failure | None:
        """Plans the first valid item, in a run of its own; returns the failure if there is no plan."""
        batch = claimed.batch
        try:
            if not (run_id := await self._start_planning(await self._planning_spec(batch), batch.id)):
                return CANCELLED
            await self._wait_until_ended(run_id, batch.id)
            run = await self._shared.runs.get(run_id)
            if run.state != RUN_STATE_COMPLETED:
                return run.failure
            pipeline = await self._shared.pipelines.builder.from_run(run_id)
        except (InvalidRequest, FailedPrecondition, NotFound) as error:
            return to_failure(error)
        await self._shared.store.set_pipeline(claimed, pipeline)
        batch.pipeline.CopyFrom(pipeline)
        return None

    async def _planning_spec(self, batch: BatchRow) -> RunSpec:
        """The request of the run that plans.

        Raises:
            InvalidRequest: no item is valid.
        """
        async for page in self._shared.pages(batch):
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

    async def _start_planning(self, spec: RunSpec, batch_id: str) -> str:
        """Starts the run that plans once a slot is free; returns its ID, or "" if the batch is cancelled before."""
        while not await self._shared.store.is_cancelled(batch_id):
            try:
                return await self._shared.runs.create(spec, BatchPosition(batch_id=batch_id))
            except Overloaded as error:
                await asyncio.sleep(error.retry_after.total_seconds() if error.retry_after else 1.0)
        return ""

    async def _wait_until_ended(self, run_id: str, batch_id: str) -> None:
        """Waits until the run that plans has ended; a command to cancel the batch cancels it."""

        async def cancel_on_command() -> None:
            await self._shared.wait_for_cancel(batch_id)
            await self._shared.runs.cancel(run_id)

        cancelling = asyncio.create_task(
            supervise(cancel_on_command, name="batch cancellation"), name=f"cancel-{batch_id}"
        )
        try:
            await self._shared.runs.wait_until_ended(run_id)
        finally:
            cancelling.cancel()

    async def _final_state(self, claimed: Claimed) -> "RunState.ValueType":
        counts = await self._shared.store.counts(claimed.batch.id, 0.0)
        total = claimed.batch.total
        if counts[RUN_STATE_COMPLETED] == total:
            return RUN_STATE_COMPLETED
        started = sum(counts.by_state.values()) - counts[RUN_STATE_QUEUED]
        if started < total or counts[RUN_STATE_CANCELLED]:
            return RUN_STATE_CANCELLED
        usable = counts[RUN_STATE_COMPLETED] + counts[RUN_STATE_INCOMPLETE]
        return RUN_STATE_INCOMPLETE if usable else RUN_STATE_FAILED
