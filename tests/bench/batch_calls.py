"""Cost of InferBatch: a call with many items against one with a single item, and against as many calls of Infer."""

import asyncio
import time
from collections.abc import Mapping

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferBatchItem, InferBatchRequest, InferBatchResponse
from tests.bench.expert_callers import TEXT, TIMEOUT_SECONDS, ExpertCaller
from tests.bench.rows import Row, median

ITEMS = 64
TARGET = 1.3
"""Most that a call with ITEMS items may take, over one call of Infer."""

WARMUPS, ROUNDS = 5, 15


async def ratio_row(
    name: str,
    channel: grpc.aio.Channel,
    model: str,
    what: str,
    *,
    task: str,
    inputs: Mapping[str, Value] = TEXT,
    target: float | None = TARGET,
) -> Row:
    """How much longer a call with ITEMS items takes than one call of Infer; rounds alternate between both.

    Args:
        name: id of the row.
        channel: to the expert.
        model: its id.
        what: what the model does, for the note.
        task: of the requests.
        inputs: of each item.
        target: upper bound.
    """
    caller = ExpertCaller(channel, model, task=task, inputs=inputs)
    batch = InferBatchRequest(task=task, model=model, items=[InferBatchItem(inputs=inputs)] * ITEMS)
    one, many, single = list[float](), list[float](), list[float]()
    for number in range(WARMUPS + ROUNDS):
        measured = await caller.call(), await _call_batch(channel, batch), await _call_at_once(caller)
        if number >= WARMUPS:
            for seconds, taken in zip((one, many, single), measured, strict=True):
                seconds.append(taken)
    ours, alone, at_once = (f"{median(seconds) * 1e3:.3g} ms" for seconds in (many, one, single))
    note = (
        f"InferBatch of {ITEMS} items, {ours}, over one Infer, {alone}; {what}; "
        f"{ITEMS} calls of Infer at once take {at_once}"
    )
    return Row(name, median([many_ / one_ for many_, one_ in zip(many, one, strict=True)]), "x", target, note=note)


async def _call_batch(channel: grpc.aio.Channel, batch: InferBatchRequest) -> float:
    """Seconds of one call, which must succeed for all items."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        "/hugginggpt.v1.ExpertService/InferBatch"
    )
    request = batch.SerializeToString()
    started = time.perf_counter()
    reply = await call(request, timeout=TIMEOUT_SECONDS)
    taken = time.perf_counter() - started
    results = InferBatchResponse.FromString(reply).results
    if len(results) != ITEMS or any(result.HasField("failure") for result in results):
        raise RuntimeError("an item of the benchmark failed")
    return taken


async def _call_at_once(caller: ExpertCaller) -> float:
    """Seconds of ITEMS concurrent calls of Infer."""
    started = time.perf_counter()
    async with asyncio.TaskGroup() as calls:
        for _ in range(ITEMS):
            calls.create_task(caller.call())
    return time.perf_counter() - started
