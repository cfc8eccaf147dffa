"""Taking in a new batch: its spec, then its items page by page, of which never more than one page is in memory."""

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
from services.common.errors import InvalidRequest
from services.orchestrator.experts.client import to_failure
from services.orchestrator.journal.batch_removal import BatchRemoval
from services.orchestrator.journal.batch_rows import NewBatch
from services.orchestrator.journal.batches import KeptBatches
from services.orchestrator.pipelines import parameters
from services.orchestrator.pipelines.service import Pipelines, stricter
from services.orchestrator.runs import acceptance

MOST_ITEMS = 1_000_000

PAGE = 500
"""Items kept in one transaction: others wait for it."""


class Reception:
    """Takes in batches.

    Args:
        kept: where they go.
        removal: takes back those that break off before they run.
        pipelines: what their items run through.
    """

    def __init__(self, kept: KeptBatches, removal: BatchRemoval, pipelines: Pipelines) -> None:
        self._kept = kept
        self._removal = removal
        self._pipelines = pipelines

    async def received(self, parts: AsyncIterable[CreateBatchRequest], taken: Callable[[], Awaitable[None]]) -> str:
        """Keeps a batch that then runs; gives its id, an earlier one's if the idempotency key stands for the same.

        Args:
            parts: its spec, then its items.
            taken: called once the spec is taken, before the items are read.

        Raises:
            InvalidRequest: the stream does not begin with a spec, there is no item, or none fits; BROKEN_OFF; BUDGET.
            NotFound: PIPELINE or RUN.
            FailedPrecondition: VANISHED or POLICY.
            AlreadyExists: IDEMPOTENCY.
        """
        spec, pages = await _opened(parts)
        with call_context.use_caller(stricter(call_context.current(), spec.policy)):
            pipeline = await self._planned(spec)
            acceptance.check(RunSpec(request=spec.request, plan=pipeline.plan, budget=spec.budget))
            who = stricter(call_context.current(), pipeline.policy)
            with call_context.use_caller(who):
                await self._pipelines.vouch(pipeline.plan, spec.inference_mode, spec.constraints)
        batch = NewBatch(f"batch_{int(time.time() * 1000):011x}{secrets.token_hex(8)}", who, spec, pipeline)
        await self._kept.begin(batch)
        started = ""
        try:
            await taken()
            digest, total = await self._filled(batch, pages)
            started = await asyncio.shield(self._kept.start(batch.id, who.tenant, spec.idempotency_key, digest, total))
        finally:
            if started != batch.id:  # which a caller that leaves meanwhile does not know: it may run by now
                await asyncio.shield(self._removal.abandon(batch.id, who.tenant))
        return started

    async def _planned(self, spec: BatchSpec) -> Pipeline:
        """What its items run through; empty if that is to be planned."""
        pipelines = self._pipelines
        match spec.WhichOneof("source"):
            case "pipeline":
                pipeline = await pipelines.get(spec.pipeline)
                spec.pipeline.version = pipeline.version
                return pipeline
            case "plan":
                return await pipelines.drafted(spec.plan)
            case "run_id":
                return await pipelines.of_run(spec.run_id)
            case "request" if spec.request.strip():
                return Pipeline()
        raise InvalidRequest(
            "it is not said what to run on the items", reason="EMPTY", port="spec", remedy="name a pipeline, or a plan"
        )

    async def _filled(self, batch: NewBatch, pages: AsyncIterable[Sequence[NewItem]]) -> tuple[str, int]:
        """Keeps the items; gives the digest of what was asked, and how many items there are."""
        asked, total, misfits, first = _Digest(batch.spec, batch.caller), 0, 0, None
        async for page in pages:
            unfit = _misfits(batch.pipeline, page, total + 1)
            first, misfits = first or next(iter(unfit.values()), None), misfits + len(unfit)
            if total + len(page) > MOST_ITEMS:
                remedy = "split it into several"
                raise InvalidRequest(f"a batch has {MOST_ITEMS} items at most", reason="TOO_LARGE", remedy=remedy)
            await self._kept.add(batch.id, batch.caller.tenant, total + 1, page, unfit)
            asked.add(page)
            total += len(page)
        if not total:
            raise InvalidRequest("the batch has no items", reason="EMPTY", port="items", remedy="send one at least")
        if first and misfits == total:
            raise InvalidRequest(f"no item fits: {first.message}", port=first.port, remedy=first.remedy)
        return asked.hex, total


class _Digest:
    """Same digest, same batch: SHA-256 over spec, data policy and items."""

    def __init__(self, spec: BatchSpec, who: Caller) -> None:
        bare = BatchSpec()
        bare.CopyFrom(spec)
        bare.ClearField("idempotency_key")
        self._hash = hashlib.sha256(_bytes(bare) + b"%d" % who.policy)

    def add(self, items: Sequence[NewItem]) -> None:
        for item in items:
            content = _bytes(item)
            self._hash.update(len(content).to_bytes(8) + content)

    @property
    def hex(self) -> str:
        return self._hash.hexdigest()


async def _opened(parts: AsyncIterable[CreateBatchRequest]) -> tuple[BatchSpec, AsyncIterator[Sequence[NewItem]]]:
    stream = aiter(parts)
    with contextlib.suppress(StopAsyncIteration):
        first = await anext(stream)
        if first.HasField("spec"):
            if first.spec.max_at_once < 0:
                raise InvalidRequest("max_at_once is negative", port="max_at_once", remedy="send 0 for the usual")
            return first.spec, _paged(stream)
    raise InvalidRequest("the batch's spec must come first", port="spec", remedy="send it, then the items")


async def _paged(parts: AsyncIterable[CreateBatchRequest]) -> AsyncIterator[Sequence[NewItem]]:
    async for items in upload_acks.read_items(parts):
        for begin in range(0, len(items), PAGE):
            yield items[begin : begin + PAGE]


def _misfits(pipeline: Pipeline, items: Sequence[NewItem], first: int) -> dict[int, Failure]:
    """What is wrong with items, by index; only what was said to be is known while there is no plan."""
    found: dict[int, Failure] = {}
    for index, item in enumerate(items, first):
        if item.HasField("failure"):
            found[index] = item.failure
        elif pipeline.plan.tasks:
            try:
                parameters.place(pipeline.inputs, item.inputs)
                parameters.check(pipeline.inputs, item.inputs)
            except InvalidRequest as error:
                found[index] = to_failure(error)
    return found


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)
