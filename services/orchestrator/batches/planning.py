"""Plans a batch that was created with a request instead of a plan."""

import asyncio
from collections.abc import Callable

from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_PLAN, RUN_STATE_COMPLETED, BatchPosition, RunSpec
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, Overloaded
from services.common.supervision import supervise
from services.orchestrator.batches import items
from services.orchestrator.failures import to_failure
from services.orchestrator.journal.batch_rows import BatchRow, Claimed
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.notifier import ChangeNotifier
from services.orchestrator.pipelines.builder import PipelineBuilder
from services.orchestrator.runs.run_log import CANCELLED
from services.orchestrator.runs.service import RunService


class BatchPlanner:
    """Plans a batch once, on its first valid item, in a run of its own.

    Args:
        store: of batches.
        runs: executes the run that plans.
        builder: builds the pipeline from the plan.
        report: called with the reason while the run that plans has to wait; with "" when it has started.
    """

    def __init__(
        self, store: BatchStore, runs: RunService, builder: PipelineBuilder, report: Callable[[str], None]
    ) -> None:
        self._store = store
        self._runs = runs
        self._builder = builder
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
            await self._wait_until_ended(run_id, batch.id)
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

    async def _wait_until_ended(self, run_id: str, batch_id: str) -> None:
        """Waits until the run that plans has ended; a command to cancel the batch cancels it."""

        async def cancel_on_command() -> None:
            await wait_for_cancel(batch_id, self._store, self._runs.notifier)
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
