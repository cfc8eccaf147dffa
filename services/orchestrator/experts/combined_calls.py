"""Short calls for items of batches, combined: those that wait at the same time become one call of InferBatch.

Each item keeps an attempt of its own, with its events, its error and its retries; only the message to the expert is
shared. A call is combined if its model has shown that it takes so little time that the message matters, and only the
first time: a call that is repeated goes alone, so that an input which makes its expert fail does not take others along.
"""

import asyncio
import contextvars
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import grpc

from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.expert_pb2 import (
    InferBatchItem,
    InferBatchRequest,
    InferBatchResponse,
    InferRequest,
    InferResponse,
)
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context
from services.common.errors import (
    CorruptData,
    RecoveryAction,
    ServiceError,
    from_failure,
    from_rpc,
    recovery_action,
)
from services.orchestrator.experts.channel_pool import ChannelPool
from services.orchestrator.experts.load_balancer import Trailer

MAX_ITEMS = 32
"""Limit of items in one call."""

CALL_SECONDS = 0.1
"""Predicted time of the largest call: results come no later, and a failed call repeats no more work."""

CALLS_AT_ONCE = 2
"""Combined calls with one key in flight: the expert runs one while the results of the other are recorded. Calls that
come meanwhile form the next."""

MAX_WAIT_SECONDS = 1.0
"""A call that has waited this long for others to return is made alone."""

EXCLUDED_SECONDS = 600.0
"""How long the calls of a model are not combined after a combined call has failed for a reason of its own."""

_LAST_WEIGHT = 0.3
"""Weight of the last call in the mean time of an item."""

Answer = tuple[InferResponse, Trailer]


class _CallKey(NamedTuple):
    """What the items of one call share."""

    address: str
    task: str
    model: str
    revision: str
    parameters: str
    caller: bytes
    """Without the run, its request and its deadline."""


@dataclass
class _ItemTime:
    """Time that a model takes for an item, as far as known."""

    seconds: float = 0.0
    excluded_until: float = 0.0
    """Until then its calls are not combined, in monotonic seconds."""

    @property
    def size(self) -> int:
        """Number of items that one call may have."""
        if not self.seconds or time.monotonic() < self.excluded_until:
            return 1
        return min(MAX_ITEMS, int(CALL_SECONDS / self.seconds))


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A call that waits to be combined; its answer is None if it is to be made alone."""

    item: InferBatchItem
    answer: "asyncio.Future[Answer | None]"
    context: contextvars.Context


@dataclass
class _Queue:
    """Calls with one key."""

    waiting: list[_Waiting] = field(default_factory=list)
    in_flight: int = 0
    """Combined calls."""
    sending: asyncio.Handle | None = None
    """Sends the waiting calls."""
    releasing: asyncio.TimerHandle | None = None
    """Lets the waiting calls be made alone."""


class CallCombiner:
    """Combines calls of this process.

    Args:
        channels: to the experts.
        call_seconds: timeout of one call.
    """

    def __init__(self, channels: ChannelPool, call_seconds: float) -> None:
        self._channels, self._call_seconds = channels, call_seconds
        self._item_times: dict[tuple[str, str], _ItemTime] = {}
        self._queues: dict[_CallKey, _Queue] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def forget_unused(self, addresses: Collection[str]) -> None:
        """Drops what is known of models at addresses that are not in `addresses`."""
        self._item_times = {key: known for key, known in self._item_times.items() if key[0] in addresses}

    def observe(self, address: str, model: str, usage: Usage, items: int = 1) -> None:
        """Learns from the usage of an ended call; calls that use tokens stay alone: these cannot be divided."""
        item_time = self._item_time(address, model)
        if usage.input_tokens or usage.output_tokens:
            item_time.excluded_until = time.monotonic() + EXCLUDED_SECONDS
        if seconds := usage.busy.ToNanoseconds() / 1e9 / items:
            item_time.seconds = (
                seconds if not item_time.seconds else (1 - _LAST_WEIGHT) * item_time.seconds + _LAST_WEIGHT * seconds
            )

    def combines(self, address: str, model: str) -> bool:
        """Whether calls of a model at an address are combined now."""
        return self._item_time(address, model).size > 1

    async def call(self, address: str, request: InferRequest) -> Answer | None:
        """The answer to a call, made together with others; None if it must be made alone.

        Raises:
            ServiceError: the item, or the call as a whole, failed.
        """
        key = _CallKey(
            address, request.task, request.model, request.revision, request.parameters_json, _shared_caller()
        )
        queue = self._queues.setdefault(key, _Queue())
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        item = InferBatchItem(inputs=request.inputs, lists=request.lists)
        queue.waiting.append(_Waiting(item, answer, contextvars.copy_context()))
        self._schedule(key, queue)
        return await answer

    def _schedule(self, key: _CallKey, queue: _Queue) -> None:
        """Sends waiting calls once all that come in this round of the event loop have come."""
        if not queue.sending:
            queue.sending = asyncio.get_running_loop().call_soon(self._send_waiting, key, queue)

    def _send_waiting(self, key: _CallKey, queue: _Queue) -> None:
        queue.sending = None
        queue.waiting = [each for each in queue.waiting if not each.answer.done()]  # without those cancelled
        size = self._item_time(key.address, key.model).size
        while queue.waiting and queue.in_flight < CALLS_AT_ONCE:
            group, queue.waiting = queue.waiting[:size], queue.waiting[size:]
            self._send(key, queue, group)
        if queue.releasing and not queue.waiting:
            queue.releasing.cancel()
            queue.releasing = None
        elif queue.waiting and not queue.releasing:
            queue.releasing = asyncio.get_running_loop().call_later(MAX_WAIT_SECONDS, self._release, queue)
        if not queue.waiting and not queue.in_flight:
            self._queues.pop(key, None)

    def _release(self, queue: _Queue) -> None:
        """Lets the waiting calls be made alone, because those in flight do not return."""
        queue.releasing = None
        waiting, queue.waiting = queue.waiting, []
        _return_to_callers(waiting)

    def _send(self, key: _CallKey, queue: _Queue, group: Sequence[_Waiting]) -> None:
        queue.in_flight += 1
        call = asyncio.create_task(self._call(key, group), name="combined call", context=group[0].context)
        self._calls.add(call)
        call.add_done_callback(partial(self._ended, key, queue))
        for each in group:
            each.answer.add_done_callback(partial(_cancel_unused, call, group))

    def _ended(self, key: _CallKey, queue: _Queue, call: "asyncio.Task[None]") -> None:
        self._calls.discard(call)
        queue.in_flight -= 1
        self._schedule(key, queue)

    async def _call(self, key: _CallKey, group: Sequence[_Waiting]) -> None:
        """Makes one call, and gives each item its answer."""
        request = InferBatchRequest(
            task=key.task,
            model=key.model,
            revision=key.revision,
            parameters_json=key.parameters,
            items=[each.item for each in group],
        )
        channel = self._channels.acquire(key.address)
        metadata = ((call_context.METADATA_KEY, key.caller),)
        try:
            call = channel.expert.InferBatch(request, timeout=self._call_seconds, metadata=metadata)
            self._answer(key, group, await call, await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            channel.is_broken = channel.is_broken or error.code() is grpc.StatusCode.UNAVAILABLE
            self._fail(key, group, error)
        finally:
            _return_to_callers(group)  # has no effect on those that are answered
            await self._channels.release(channel)

    def _answer(self, key: _CallKey, group: Sequence[_Waiting], reply: InferBatchResponse, trailer: Trailer) -> None:
        count, last = len(group), group[-1]
        self.observe(key.address, key.model, reply.usage, count)
        if len(reply.results) != count:
            message = f"the expert answered {len(reply.results)} of {count} items"
            for each in group:
                _fail(each, CorruptData(message, remedy="fix the expert: InferBatch returns a result per item"))
            return
        usage = _share(reply.usage, count)
        for each, result in zip(group, reply.results, strict=True):
            if each.answer.done():  # cancelled
                continue
            if result.HasField("failure"):
                _fail(each, from_failure(result.failure))
            else:
                answer = InferResponse(outputs=result.outputs, revision=reply.revision, usage=usage)
                each.answer.set_result((answer, trailer if each is last else ()))

    def _fail(self, key: _CallKey, group: Sequence[_Waiting], error: grpc.aio.AioRpcError) -> None:
        """Fails the items of a call that may be repeated; after another error each item is called alone."""
        if recovery_action(from_rpc(error)) is RecoveryAction.RETRY:
            for each in group:
                _fail(each, from_rpc(error))
        else:
            self._item_time(key.address, key.model).excluded_until = time.monotonic() + EXCLUDED_SECONDS

    def _item_time(self, address: str, model: str) -> _ItemTime:
        return self._item_times.setdefault((address, model), _ItemTime())


def _shared_caller() -> bytes:
    """The current caller without what differs between the runs of a batch."""
    shared = Caller()
    shared.CopyFrom(call_context.current())
    for name in ("run_id", "request_id", "deadline"):
        shared.ClearField(name)
    return shared.SerializeToString(deterministic=True)


def _share(usage: Usage, count: int) -> Usage:
    """The usage of each item: an equal share, as within a batch of the expert."""
    share = Usage(pool_seconds={pool: seconds / count for pool, seconds in usage.pool_seconds.items()})
    share.busy.FromNanoseconds(usage.busy.ToNanoseconds() // count)
    return share


def _fail(waiting: _Waiting, error: ServiceError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)


def _return_to_callers(group: Sequence[_Waiting]) -> None:
    """Lets the callers of unanswered calls make them alone."""
    for each in group:
        if not each.answer.done():
            each.answer.set_result(None)


def _cancel_unused(
    call: "asyncio.Task[None]", group: Sequence[_Waiting], answer: "asyncio.Future[Answer | None]"
) -> None:
    """Cancels a call once nothing waits for any of its answers."""
    if answer.cancelled() and all(each.answer.cancelled() for each in group):
        call.cancel()
