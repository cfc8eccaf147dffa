"""Infer calls over gRPC: one channel for each address, progress of long calls, usage and price."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import grpc
from grpc import StatusCode

from protos.hugginggpt.v1.expert_pb2 import InferRequest, ProgressRequest
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context
from services.common.errors import DeadlineExceeded, ServiceError, from_rpc
from services.orchestrator.experts.attempts import MORE_TIME, TaskAttempts
from services.orchestrator.experts.candidates import CandidateAttempts
from services.orchestrator.experts.channel_pool import ChannelPool, ExpertChannel
from services.orchestrator.experts.combined_calls import Answer, CallCombiner
from services.orchestrator.experts.health import ExpertHealth
from services.orchestrator.experts.load_balancer import Trailer
from services.orchestrator.experts.replies import Prices, check_reply, pool_seconds

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceAsyncStub

REACHED_SECONDS = 1.0
"""A call that has run this long on a READY channel shows that its address is reachable, even if it fails later."""

PROGRESS_AFTER_SECONDS = 2.0
"""Progress is followed after this time: most calls have ended by then, and cost only a timer."""

PROGRESS_INTERVAL_SECONDS = 0.5
"""Shortest interval between reports; steps in between are dropped, since each report is written to the journal."""

LONGEST_PROGRESS_SECONDS = 3600.0


class InferCaller:
    """Calls experts, and updates their health from the outcome.

    Args:
        health: of the experts.
        attempt_seconds: timeout of one call.
        prices: price table.
    """

    def __init__(self, health: ExpertHealth, attempt_seconds: float, prices: Prices) -> None:
        self._health, self._attempt_seconds, self._prices = health, attempt_seconds, prices
        self._channels = ChannelPool()
        self._combiner = CallCombiner(self._channels, attempt_seconds)
        self._prefix, self._numbers = uuid4().hex, itertools.count(1)

    async def close(self) -> None:
        await self._combiner.close()
        await self._channels.close()

    async def close_unused(self, addresses: Collection[str]) -> None:
        """Closes idle channels to addresses that are not in `addresses`."""
        self._combiner.forget_unused(addresses)
        await self._channels.close_unused(addresses)

    async def call(self, current: CandidateAttempts, address: str) -> TaskResult:
        """Calls a candidate once, at an address.

        Raises:
            ServiceError: the call failed.
        """
        attempts, by, started = current.attempts, current.candidate, time.monotonic()
        seconds = min(self._attempt_seconds, current.deadline.left)
        if seconds <= 0:
            message = f"the deadline passed before {by.expert} was called"
            raise DeadlineExceeded(message, remedy=MORE_TIME)
        trailer: Trailer = ()
        attempts.report_start(by)
        self._health.call_started(by, address)
        try:
            reply, trailer = await self._reply(current, address, seconds)
            self._record_usage(attempts, by, reply.usage, started)
            check_reply(reply, attempts.task.spec)
        except ServiceError as error:
            had_full_timeout = seconds >= self._attempt_seconds
            self._health.call_failed(by, address, error, had_full_timeout=had_full_timeout)
            raise
        except asyncio.CancelledError:
            self._health.call_cancelled(by, address)
            raise
        finally:
            self._health.call_ended(by, address, trailer)
        self._health.call_succeeded(by, address)
        result = TaskResult(task_id=attempts.task.task_id, attempt=attempts.number, by=by, outputs=reply.outputs)
        result.by.revision = reply.revision or by.revision
        result.usage.CopyFrom(reply.usage)
        return result

    async def _reply(self, current: CandidateAttempts, address: str, seconds: float) -> Answer:
        attempts, by = current.attempts, current.candidate
        request = InferRequest(model=by.model_id, revision=by.revision)
        request.MergeFrom(attempts.task.request)
        if self._may_combine(current, address, seconds) and (answer := await self._combiner.call(address, request)):
            return answer
        request.call_id = f"{self._prefix}-{next(self._numbers)}"
        answer = await self._reply_alone(attempts, by, address, request, seconds)
        self._combiner.observe(address, by.model_id, answer[0].usage)
        return answer

    def _may_combine(self, current: CandidateAttempts, address: str, seconds: float) -> bool:
        """Whether a call may be made together with others: the first one of a batch item, with the full timeout."""
        return (
            current.permit.batch
            and current.attempts.number == 1
            and seconds >= self._attempt_seconds
            and self._combiner.combines(address, current.candidate.model_id)
            and not self._health.is_address_down(current.candidate, address)
        )

    async def _reply_alone(
        self, attempts: TaskAttempts, by: Candidate, address: str, request: InferRequest, seconds: float
    ) -> Answer:
        channel = self._channels.acquire(address)
        progress = ProgressFollower(channel.expert, request.call_id, attempts.report_progress)
        reached, started = None, time.monotonic()
        if self._health.is_address_down(by, address):
            reached = asyncio.create_task(self._report_reached(channel, by), name=f"reached-{address}")
        try:
            call = channel.expert.Infer(request, timeout=seconds, metadata=call_context.metadata())
            return await call, await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            channel.is_broken = channel.is_broken or error.code() is StatusCode.UNAVAILABLE
            if seconds_by_pool := pool_seconds(error.trailing_metadata() or ()):
                self._record_usage(attempts, by, Usage(pool_seconds=seconds_by_pool), started)
            raise _described(from_rpc(error), by, seconds) from error
        finally:
            progress.stop()
            if reached:
                reached.cancel()
            await self._channels.release(channel)

    async def _report_reached(self, channel: "ExpertChannel", by: Candidate) -> None:
        """Reports an address as reachable once a call has run for REACHED_SECONDS and its channel is connected."""
        await asyncio.sleep(REACHED_SECONDS)
        await channel.channel.channel_ready()
        self._health.address_reached(by, channel.address)

    def _record_usage(self, attempts: TaskAttempts, by: Candidate, usage: Usage, started: float) -> None:
        """Adds duration and cost to the usage of a call that has ended."""
        usage.elapsed.FromTimedelta(timedelta(seconds=time.monotonic() - started))
        self._prices.charge(usage, attempts.task.spec.name, by.model_id)
        attempts.usage = usage


class ProgressFollower:
    """Reports the progress of one call until it is stopped; if progress is not available the call continues without.

    Args:
        expert: runs the call.
        call_id: the call's ID at the expert.
        report: takes the fraction, from 0 to 1, and a message; called at most twice a second.
    """

    def __init__(self, expert: "ExpertServiceAsyncStub", call_id: str, report: Callable[[float, str], None]) -> None:
        self._expert, self._call_id, self._report = expert, call_id, report
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(PROGRESS_AFTER_SECONDS, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._follow(), name=f"progress-{self._call_id}")

    async def _follow(self) -> None:
        clock = asyncio.get_running_loop().time
        next_at = clock()
        request, metadata = ProgressRequest(call_ids=[self._call_id]), call_context.metadata()
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for step in self._expert.Progress(request, metadata=metadata, timeout=LONGEST_PROGRESS_SECONDS):
                if clock() >= next_at:
                    next_at = clock() + PROGRESS_INTERVAL_SECONDS
                    self._report(step.fraction, step.message)


def _described(error: ServiceError, by: Candidate, seconds: float) -> ServiceError:
    """The error, with a message that names model and expert if gRPC's own deadline passed."""
    if isinstance(error, DeadlineExceeded) and not error.remedy:
        message = f"model {by.model_id} of expert {by.expert} did not answer within {seconds:.3g} s"
        return DeadlineExceeded(message, remedy="send a smaller request, or let the operator raise attempt_seconds")
    return error
