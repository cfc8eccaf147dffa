"""One Infer call: chooses an address, makes the call, and updates circuits and load from the outcome."""

import asyncio
import itertools
import time
from collections.abc import Collection, Iterator
from datetime import timedelta
from uuid import uuid4

import grpc
from grpc import StatusCode

from protos.hugginggpt.internal.v1.selector_pb2 import SelectedCandidate
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context
from services.common.errors import DeadlineExceeded, Overloaded, ServiceError, Unavailable, from_rpc
from services.orchestrator.experts.candidates import AttemptReporter
from services.orchestrator.experts.channels import ChannelPool, ExpertChannel
from services.orchestrator.experts.circuit_breaker import CircuitBreakers, Key
from services.orchestrator.experts.load_balancer import LoadBalancer, Trailer
from services.orchestrator.experts.progress import ProgressFollower
from services.orchestrator.experts.reply_validation import check_reply
from services.orchestrator.pricing import Prices, pool_seconds

_MODEL_ERRORS = {StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DATA_LOSS}
"""Status codes that count as failures of the model."""

_LOCAL_CODES = {StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED}
"""Status codes that the client can produce itself: they do not show that the server is reachable."""

FORGET_EVERY_SECONDS = 60.0

REACHED_SECONDS = 1.0
"""A call that has run this long on a READY channel shows that its address is reachable, however long it still takes."""


class InferCaller:
    """Calls experts, and tracks the health and load of their addresses and models.

    Args:
        attempt_seconds: timeout of one call.
        prices: price table.
    """

    def __init__(self, attempt_seconds: float, prices: Prices) -> None:
        self.circuits = CircuitBreakers()
        self._attempt_seconds, self._prices = attempt_seconds, prices
        self._channels, self._balancer = ChannelPool(), LoadBalancer()
        self._prefix, self._numbers = uuid4().hex, itertools.count(1)
        self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS

    async def close(self) -> None:
        await self._channels.close()

    async def forget_unused(self) -> None:
        """Drops channels, load and circuits of addresses that are no longer used, at most once a minute."""
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS
            self._balancer.forget()
            self.circuits.forget()
            await self._channels.close_unused(self._balancer.addresses)

    def seconds_left(self, selected: SelectedCandidate) -> float:
        """Seconds until the circuits let a call of the candidate through; 0: now."""
        if self.circuits.all_closed:
            return 0.0
        model = self.circuits.seconds_left(_model_key(selected.candidate))
        return max(model, min((self.circuits.seconds_left(key) for key in _address_keys(selected)), default=0.0))

    def unavailable_reasons(self, selected: SelectedCandidate) -> tuple[str, str]:
        """Reasons of the candidate's open circuits: of its addresses, and of its model; empty where none is open."""
        return self.circuits.reason(*_address_keys(selected)), self.circuits.reason(_model_key(selected.candidate))

    def is_address_down(self, candidate: Candidate, address: str) -> bool:
        """Whether the circuit of the address is open."""
        return self.circuits.is_open(_address_key(candidate, address))

    def has_other_address(self, selected: SelectedCandidate, excluded: Collection[str]) -> bool:
        """Whether an address that is not excluded can be called now."""
        return any(
            endpoint.address not in excluded
            and not self.circuits.seconds_left(_address_key(selected.candidate, endpoint.address))
            for endpoint in selected.endpoints
        )

    def choose_address(self, selected: SelectedCandidate, excluded: set[str]) -> str:
        """The address for the next call; empty if none can be called now.

        Args:
            selected: the candidate to call.
            excluded: addresses to use only if there are no others; cleared in that case.
        """
        candidate, usable = selected.candidate, list(selected.endpoints)
        if not self.circuits.all_closed:
            if self.circuits.seconds_left(_model_key(candidate)):
                return ""
            usable = [each for each in usable if not self.circuits.seconds_left(_address_key(candidate, each.address))]
        preferred = [endpoint for endpoint in usable if endpoint.address not in excluded] if excluded else usable
        if not preferred:
            excluded.clear()
        return self._balancer.choose(candidate.model_id, preferred or usable) if usable else ""

    async def call(self, reporter: AttemptReporter, by: Candidate, address: str, seconds: float) -> TaskResult:
        """Calls a candidate at an address, with a timeout of `seconds`.

        Raises:
            ServiceError: the call failed; the circuits are already updated.
        """
        reporter.attempt_started(by)
        started = time.monotonic()
        address_key, model_key = _address_key(by, address), _model_key(by)
        trailer: Trailer = ()
        self.circuits.enter(address_key, model_key)
        self._balancer.call_started(address, by.model_id)
        try:
            reply, trailer = await self._reply(reporter, by, address, seconds)
            self._record_usage(reporter, by, reply.usage, started)
            check_reply(reply, reporter.task.spec)
        except ServiceError as error:
            self._record_failure(error, address_key, model_key, had_full_timeout=seconds >= self._attempt_seconds)
            raise
        except asyncio.CancelledError:
            self.circuits.ended_without_result(address_key)
            self.circuits.ended_without_result(model_key)
            raise
        finally:
            self._balancer.call_ended(address, by.model_id, trailer)
        self.circuits.succeeded(address_key)
        self.circuits.succeeded(model_key)
        return _result(reporter, by, reply)

    def _record_usage(self, reporter: AttemptReporter, by: Candidate, usage: Usage, started: float) -> None:
        """Adds duration and cost to the usage of a call that has ended."""
        usage.elapsed.FromTimedelta(timedelta(seconds=time.monotonic() - started))
        self._prices.charge(usage, reporter.task.spec.name, by.model_id)
        reporter.usage = usage

    async def _reply(
        self, reporter: AttemptReporter, by: Candidate, address: str, seconds: float
    ) -> tuple[InferResponse, Trailer]:
        request = InferRequest(model=by.model_id, revision=by.revision, call_id=f"{self._prefix}-{next(self._numbers)}")
        request.MergeFrom(reporter.task.request)
        channel = self._channels.acquire(address)
        progress = ProgressFollower(channel.expert, request.call_id, reporter.report_progress)
        timer, started = None, time.monotonic()
        if self.is_address_down(by, address):
            key = _address_key(by, address)
            timer = asyncio.get_running_loop().call_later(REACHED_SECONDS, self._close_if_ready, channel, key)
        try:
            call = channel.expert.Infer(request, timeout=seconds, metadata=call_context.metadata())
            return await call, await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            channel.broken = channel.broken or error.code() is StatusCode.UNAVAILABLE
            if seconds_by_pool := pool_seconds(error.trailing_metadata() or ()):
                self._record_usage(reporter, by, Usage(pool_seconds=seconds_by_pool), started)
            raise _described(from_rpc(error), by, seconds) from error
        finally:
            progress.stop()
            if timer:
                timer.cancel()
            await self._channels.release(channel)

    def _close_if_ready(self, channel: ExpertChannel, address: Key) -> None:
        """Closes the circuit of an address whose channel is connected."""
        if channel.channel.get_state() is grpc.ChannelConnectivity.READY:
            self.circuits.succeeded(address)

    def _record_failure(self, error: ServiceError, address: Key, model: Key, *, had_full_timeout: bool) -> None:
        """Updates the circuits of address and model, and the load, from a failed call.

        Args:
            error: of the call.
            address: circuit of the address.
            model: circuit of the model.
            had_full_timeout: the call's timeout was not cut short by the run's deadline.
        """
        if isinstance(error, Unavailable):
            self.circuits.failed(address, error.message)
            self.circuits.ended_without_result(model)
            return
        (self.circuits.ended_without_result if error.code in _LOCAL_CODES else self.circuits.succeeded)(address)
        delay = error.retry_after.total_seconds() if error.retry_after else 0.0
        if isinstance(error, Overloaded):
            self._balancer.refused(address.address, delay)
        timed_out = isinstance(error, DeadlineExceeded) and had_full_timeout
        if error.code in _MODEL_ERRORS or error.reason == "LOAD_FAILED" or timed_out:
            self.circuits.failed(model, error.message, delay)
        else:
            self.circuits.ended_without_result(model)


def _described(error: ServiceError, by: Candidate, seconds: float) -> ServiceError:
    """The error, with a message that names model and expert if gRPC's own deadline passed."""
    if isinstance(error, DeadlineExceeded) and not error.remedy:
        message = f"model {by.model_id} of expert {by.expert} did not answer within {seconds:.3g} s"
        return DeadlineExceeded(message, remedy="send a smaller request, or let the operator raise attempt_seconds")
    return error


def _result(reporter: AttemptReporter, by: Candidate, reply: InferResponse) -> TaskResult:
    result = TaskResult(task_id=reporter.task.task_id, attempt=reporter.attempt, by=by, outputs=reply.outputs)
    result.by.revision = reply.revision or by.revision
    result.usage.CopyFrom(reply.usage)
    return result


def _model_key(candidate: Candidate) -> Key:
    return Key(candidate.expert, model=candidate.model_id)


def _address_key(candidate: Candidate, address: str) -> Key:
    return Key(candidate.expert, address=address)


def _address_keys(selected: SelectedCandidate) -> Iterator[Key]:
    return (_address_key(selected.candidate, endpoint.address) for endpoint in selected.endpoints)
