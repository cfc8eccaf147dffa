"""One call of an expert: where it goes, and what is learnt from how it went."""

import asyncio
import itertools
import time
from collections.abc import Collection, Iterator
from datetime import timedelta
from uuid import uuid4

import grpc
from grpc import StatusCode

from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context
from services.common.errors import DeadlineExceeded, Overloaded, ServiceError, Unavailable, from_rpc
from services.orchestrator.experts.candidates import Asking
from services.orchestrator.experts.channels import Line, Lines
from services.orchestrator.experts.circuit_breaker import Circuits, Key
from services.orchestrator.experts.load_balancer import Replicas, Trailer
from services.orchestrator.experts.progress import Following
from services.orchestrator.experts.reply_validation import check
from services.orchestrator.pricing import Prices, used

_BROKEN = {StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DATA_LOSS}
"""Codes of a model that fails."""

_SILENT = {StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED}
"""Codes that do not show that anybody is there."""

FORGET_EVERY_SECONDS = 60.0

REACHED_SECONDS = 1.0
"""A call that has run so long on a channel that stands shows that the address is there, however long it yet takes."""


class Calls:
    """Makes calls, and keeps what is known of addresses and models by them.

    Args:
        attempt_seconds: the longest call.
        prices: what calls cost.
    """

    def __init__(self, attempt_seconds: float, prices: Prices) -> None:
        self.circuits = Circuits()
        self._attempt_seconds, self._prices = attempt_seconds, prices
        self._lines, self._replicas = Lines(), Replicas()
        self._prefix, self._numbers = uuid4().hex, itertools.count(1)
        self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS

    async def close(self) -> None:
        await self._lines.close()

    async def forget(self) -> None:
        """Drops, now and then, what is known of addresses of which nobody speaks any more."""
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + FORGET_EVERY_SECONDS
            self._replicas.forget()
            self.circuits.forget()
            await self._lines.keep(self._replicas.addresses)

    def seconds_left(self, candidate: Candidate) -> float:
        """Until a candidate with addresses can be called; 0: now."""
        if self.circuits.all_closed:
            return 0.0
        model = self.circuits.seconds_left(_model(candidate))
        return max(model, min((self.circuits.seconds_left(place) for place in _places(candidate)), default=0.0))

    def trouble(self, candidate: Candidate) -> tuple[str, str]:
        """Why it cannot be called: what is wrong with its addresses, and with its model."""
        return self.circuits.reason(*_places(candidate)), self.circuits.reason(_model(candidate))

    def lost(self, candidate: Candidate, address: str) -> bool:
        """Whether the address is taken for gone."""
        return self.circuits.is_open(_place(candidate, address))

    def elsewhere(self, candidate: Candidate, shunned: Collection[str]) -> bool:
        """Whether there is an address to call now that is not shunned."""
        return any(
            endpoint.address not in shunned and not self.circuits.seconds_left(_place(candidate, endpoint.address))
            for endpoint in candidate.endpoints
        )

    def place(self, candidate: Candidate, shunned: set[str]) -> str:
        """The address for the next call; empty if there is none now.

        Args:
            candidate: what to call.
            shunned: addresses not to be taken while there are others; emptied once there are none.
        """
        usable = list(candidate.endpoints)
        if not self.circuits.all_closed:
            if self.circuits.seconds_left(_model(candidate)):
                return ""
            usable = [each for each in usable if not self.circuits.seconds_left(_place(candidate, each.address))]
        preferred = [endpoint for endpoint in usable if endpoint.address not in shunned] if shunned else usable
        if not preferred:
            shunned.clear()
        return self._replicas.choose(candidate.model_id, preferred or usable) if usable else ""

    async def make(self, asking: Asking, candidate: Candidate, address: str, seconds: float) -> TaskResult:
        """Calls a candidate at an address.

        Raises:
            ServiceError: what went wrong; the circuits know it already.
        """
        by, begun = asking.started(candidate, address), time.monotonic()
        place, model = _place(by, address), _model(by)
        trailer: Trailer = ()
        self.circuits.enter(place, model)
        self._replicas.begun(address, by.model_id)
        try:
            reply, trailer = await self._reply(asking, by, address, seconds)
            self._took(asking, by, reply.usage, begun)
            check(reply, asking.job.spec)
        except ServiceError as error:
            self._learn(error, place, model, whole=seconds >= self._attempt_seconds)
            raise
        except asyncio.CancelledError:
            self.circuits.left(place)
            self.circuits.left(model)
            raise
        finally:
            self._replicas.ended(address, by.model_id, trailer)
        self.circuits.succeeded(place)
        self.circuits.succeeded(model)
        return _result(asking, by, reply)

    def _took(self, asking: Asking, by: Candidate, usage: Usage, begun: float) -> None:
        """Notes what a call took that has come to its end, and what that cost."""
        usage.elapsed.FromTimedelta(timedelta(seconds=time.monotonic() - begun))
        self._prices.charge(usage, asking.job.spec.name, by.model_id)
        asking.usage = usage

    async def _reply(
        self, asking: Asking, by: Candidate, address: str, seconds: float
    ) -> tuple[InferResponse, Trailer]:
        request = InferRequest(model=by.model_id, revision=by.revision, call_id=f"{self._prefix}-{next(self._numbers)}")
        request.MergeFrom(asking.job.request)
        line = self._lines.take(address)
        following = Following(line.expert, request.call_id, asking.progressed)
        reached, begun = None, time.monotonic()
        if self.lost(by, address):
            reached = asyncio.get_running_loop().call_later(REACHED_SECONDS, self._reached, line, _place(by, address))
        try:
            call = line.expert.Infer(request, timeout=seconds, metadata=call_context.metadata())
            return await call, await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            line.broken = line.broken or error.code() is StatusCode.UNAVAILABLE
            if told := used(error.trailing_metadata() or ()):
                self._took(asking, by, Usage(pool_seconds=told), begun)
            raise _told(from_rpc(error), by, seconds) from error
        finally:
            following.stop()
            if reached:
                reached.cancel()
            await self._lines.give_back(line)

    def _reached(self, line: Line, place: Key) -> None:
        if line.channel.get_state() is grpc.ChannelConnectivity.READY:
            self.circuits.succeeded(place)

    def _learn(self, error: ServiceError, place: Key, model: Key, *, whole: bool) -> None:
        """What a failure says of the address and of the model, if anything.

        Args:
            error: how the call failed.
            place: the address.
            model: the model.
            whole: it had all the time that a call may take.
        """
        if isinstance(error, Unavailable):
            self.circuits.failed(place, error.message)
            self.circuits.left(model)
            return
        (self.circuits.left if error.code in _SILENT else self.circuits.succeeded)(place)
        delay = error.retry_after.total_seconds() if error.retry_after else 0.0
        if isinstance(error, Overloaded):
            self._replicas.full(place.address, delay)
        if error.code in _BROKEN or error.reason == "LOAD_FAILED" or (isinstance(error, DeadlineExceeded) and whole):
            self.circuits.failed(model, error.message, delay)
        else:
            self.circuits.left(model)


def _told(error: ServiceError, by: Candidate, seconds: float) -> ServiceError:
    """The error in words for people: of a time that is over, gRPC only speaks of streams."""
    if isinstance(error, DeadlineExceeded) and not error.remedy:
        what = f"model {by.model_id} of expert {by.expert} did not answer within {seconds:.3g} s"
        return DeadlineExceeded(what, remedy="ask for less at once, or let the operator raise attempt_seconds")
    return error


def _result(asking: Asking, by: Candidate, reply: InferResponse) -> TaskResult:
    result = TaskResult(task_id=asking.job.task_id, attempt=asking.attempt, by=by, outputs=reply.outputs)
    result.by.revision = reply.revision or by.revision
    result.usage.CopyFrom(reply.usage)
    return result


def _model(candidate: Candidate) -> Key:
    return Key(candidate.expert, model=candidate.model_id)


def _place(candidate: Candidate, address: str) -> Key:
    return Key(candidate.expert, address=address)


def _places(candidate: Candidate) -> Iterator[Key]:
    return (_place(candidate, endpoint.address) for endpoint in candidate.endpoints)
