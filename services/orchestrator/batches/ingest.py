"""Ingests a new batch: its spec, then its items in pages, of which only one is in memory at a time."""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence

from google.protobuf.message import Message

from protos.hugginggpt.v1.batch_pb2 import BatchSpec, NewItem
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import CreateBatchRequest
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import call_context, upload_acks
from services.common.errors import InvalidRequest, to_failure
from services.orchestrator.journal.batches import BatchStore, NewBatch
from services.orchestrator.journal.retention import BatchRemoval
from services.orchestrator.pipelines import parameters
from services.orchestrator.pipelines.builder import with_policy
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.runs import new_run

MAX_ITEMS = 1_000_000

PAGE = 500
"""Items stored in one transaction: other writers wait for it."""


class BatchIngest:
    """Stores new batches.

    Args:
        store: of batches.
        removal: deletes batches whose upload ends early.
        pipelines: stored pipelines.
    """

    def __init__(self, store: BatchStore, removal: BatchRemoval, pipelines: PipelineService) -> None:
        self._store = store
        self._removal = removal
        self._pipelines = pipelines

    async def receive(
        self, parts: AsyncIterable[CreateBatchRequest], on_accepted: Callable[[], Awaitable[None]]
    ) -> str:
        """Stores a batch and starts it; returns its ID, or that of an earlier equal batch with the same key.

        Args:
            parts: the spec, then the items.
            on_accepted: called once the spec is valid, before the items are read.

        Raises:
            InvalidRequest: the stream does not begin with a spec, has no item, or no valid one; BROKEN_OFF; BUDGET.
            NotFound: PIPELINE or RUN.
            FailedPrecondition: TASK_UNAVAILABLE or POLICY.
            AlreadyExists: IDEMPOTENCY.
        """
        spec, pages = await _open(parts)
        with call_context.use_caller(with_policy(call_context.current(), spec.policy)):
            pipeline = await self._pipeline(spec)
            new_run.validate(RunSpec(request=spec.request, plan=pipeline.plan, budget=spec.budget))
            caller = with_policy(call_context.current(), pipeline.policy)
            with call_context.use_caller(caller):
                await self._pipelines.builder.check_available(pipeline.plan, spec.inference_mode, spec.constraints)
        batch = NewBatch(f"batch_{int(time.time() * 1000):011x}{secrets.token_hex(8)}", caller, spec, pipeline)
        await self._store.create(batch)
        started = ""
        try:
            await on_accepted()
            digest, total = await self._store_items(batch, pages)
            start = self._store.start(batch.id, caller.tenant, spec.idempotency_key, digest, total)
            started = await asyncio.shield(start)
        finally:
            if started != batch.id:
                # Also if the caller disconnected and start() succeeded: then abandon() does nothing.
                await asyncio.shield(self._removal.abandon(batch.id, caller.tenant))
        return started

    async def _pipeline(self, spec: BatchSpec) -> Pipeline:
        """The pipeline that the items run; empty if it is planned later."""
        pipelines = self._pipelines
        match spec.WhichOneof("source"):
            case "pipeline":
                pipeline = await pipelines.get(spec.pipeline)
                spec.pipeline.version = pipeline.version
                return pipeline
            case "plan":
                return await pipelines.builder.from_plan(spec.plan)
            case "run_id":
                return await pipelines.builder.from_run(spec.run_id)
            case "request" if spec.request.strip():
                return Pipeline()
        raise InvalidRequest(
            "the batch names no work to run", reason="EMPTY", port="spec", remedy="name a pipeline, a run, or a plan"
        )

    async def _store_items(self, batch: NewBatch, pages: AsyncIterable[Sequence[NewItem]]) -> tuple[str, int]:
        """Stores the items; returns the digest of the whole request, and the number of items."""
        digest, total, invalid_count, first = _Digest(batch.spec, batch.caller), 0, 0, None
        async for page in pages:
            invalid = _invalid_items(batch.pipeline, page, total + 1)
            first, invalid_count = first or next(iter(invalid.values()), None), invalid_count + len(invalid)
            if total + len(page) > MAX_ITEMS:
                message = f"the batch has more than {MAX_ITEMS} items"
                raise InvalidRequest(message, reason="TOO_LARGE", remedy="split it into several")
            await self._store.add(batch.id, batch.caller.tenant, total + 1, page, invalid)
            digest.add(page)
            total += len(page)
        if not total:
            message = "the batch has no items"
            raise InvalidRequest(message, reason="EMPTY", port="items", remedy="send at least one item")
        if first and invalid_count == total:
            raise InvalidRequest(f"no item is valid: {first.message}", port=first.port, remedy=first.remedy)
        return digest.hex, total


class _Digest:
    """SHA-256 of spec, data policy and items; equal for equal batches."""

    def __init__(self, spec: BatchSpec, caller: Caller) -> None:
        bare = BatchSpec()
        bare.CopyFrom(spec)
        bare.ClearField("idempotency_key")
        self._hash = hashlib.sha256(_bytes(bare) + b"%d" % caller.policy)

    def add(self, items: Sequence[NewItem]) -> None:
        for item in items:
            content = _bytes(item)
            self._hash.update(len(content).to_bytes(8) + content)

    @property
    def hex(self) -> str:
        return self._hash.hexdigest()


async def _open(parts: AsyncIterable[CreateBatchRequest]) -> tuple[BatchSpec, AsyncIterator[Sequence[NewItem]]]:
    stream = aiter(parts)
    with contextlib.suppress(StopAsyncIteration):
        first = await anext(stream)
        if first.HasField("spec"):
            if first.spec.max_at_once < 0:
                raise InvalidRequest("max_at_once is negative", port="max_at_once", remedy="send 0 for the default")
            return first.spec, _paged(stream)
    raise InvalidRequest("the first message has no batch spec", port="spec", remedy="send the spec, then the items")


async def _paged(parts: AsyncIterable[CreateBatchRequest]) -> AsyncIterator[Sequence[NewItem]]:
    async for items in upload_acks.read_items(parts):
        for begin in range(0, len(items), PAGE):
            yield items[begin : begin + PAGE]


def _invalid_items(pipeline: Pipeline, items: Sequence[NewItem], first: int) -> dict[int, Failure]:
    """Failures of invalid items by index; without a plan, only of those that were sent as failed."""
    found: dict[int, Failure] = {}
    for index, item in enumerate(items, first):
        if item.HasField("failure"):
            found[index] = item.failure
        elif pipeline.plan.tasks:
            try:
                parameters.assign_files(pipeline.inputs, item.inputs)
                parameters.check(pipeline.inputs, item.inputs)
            except InvalidRequest as error:
                found[index] = to_failure(error)
    return found


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)
