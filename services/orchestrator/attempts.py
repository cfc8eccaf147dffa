"""Asking experts: which endpoint, how often, and what a failure leads to. The one place that decides about retries."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from typing import TYPE_CHECKING, Self
from uuid import uuid4

import grpc
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse, ProgressRequest
from protos.hugginggpt.v1.selector_pb2 import Avoid
from protos.hugginggpt.v1.types_pb2 import (
    MODALITY_JSON,
    MODALITY_TEXT,
    AttemptFailed,
    Candidate,
    Endpoint,
    Failure,
    Port,
    RunEvent,
    TaskProgress,
    TaskResult,
    TaskSpec,
    TaskStarted,
    Value,
)
from services.orchestrator.retries import RetryBudget
from services.runtime import caller
from services.runtime.channel import dial
from services.runtime.errors import CorruptData, Overloaded, ServiceError, Unavailable, Verdict, from_rpc, verdict

if TYPE_CHECKING:  # these names exist for type checkers only
    from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceAsyncStub

Emit = Callable[[RunEvent], None]
Again = Callable[[], Awaitable[Sequence[Candidate]]]

TRIES = 8
"""Attempts with one candidate: with full jitter they outlast the restart of an expert, a few seconds."""

PROGRESS_AFTER_SECONDS = 2.0

_BACKOFF = wait_random_exponential(multiplier=0.1, max=2.0)


@dataclass(frozen=True)
class Job:
    """A task whose inputs are there."""

    task_id: int
    request: InferRequest
    """Without model, revision and call id."""
    spec: TaskSpec
    """What the reply must look like."""
    candidates: Sequence[Candidate]
    """Best first."""
    emit: Emit
    """Told of every attempt's start, of what is waited for, and of every failure but the last."""
    retries: RetryBudget
    """The run's, shared by its tasks."""
    again: Again
    """Asks the selector anew, by ranking only; raises ServiceError."""
    last_attempt: int = 0
    """Number of the last attempt made before."""


class Attempts:
    """Channels to experts, by address, and the policy of asking them.

    Args:
        selector: tells of changes in the catalogue.
        attempt_seconds: time one call has, if the run has that much left.
        calls_at_once: most calls under way, of all.
        calls_per_expert: most calls under way of one expert.
        calls_per_run: most calls under way of one run.
    """

    def __init__(
        self,
        selector: "SelectorServiceAsyncStub",
        *,
        attempt_seconds: float,
        calls_at_once: int,
        calls_per_expert: int,
        calls_per_run: int,
    ) -> None:
        self._attempt_seconds = attempt_seconds
        self._lines: dict[str, _Line] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for line in self._lines.values():
            await line.channel.close()

    def avoid(self) -> list[Avoid]:
        """What has been failing, for the selector to rank last."""
        return []

    async def infer(self, job: Job) -> TaskResult:
        """Asks the candidates in order until one answers; gives the outputs, or the failure of the last attempt."""
        task_id, candidates = job.task_id, job.candidates
        asking = _Asking(task_id, job.request, job.spec, job.emit, job.last_attempt)
        result = TaskResult(task_id=task_id)
        for position, candidate in enumerate(candidates):
            last = position == len(candidates) - 1
            try:
                return await self._ask(asking, candidate, patient=last)
            except ServiceError as error:
                result = TaskResult(task_id=task_id, attempt=asking.attempt, by=candidate, failure=to_failure(error))
                if last or verdict(error) is Verdict.GIVE_UP:
                    return result
                asking.failed(error, candidate, Verdict.NEXT_CANDIDATE)
        return result

    async def _ask(self, asking: "_Asking", candidate: Candidate, *, patient: bool) -> TaskResult:
        """Asks one candidate; a patient one waits out an overload, however long the run has."""
        if not candidate.endpoints:
            asking.attempt += 1
            remedy = "start the expert, or try again later"
            raise Unavailable(f"expert {candidate.expert} has no address", remedy=remedy)
        turns = cycle(sorted(candidate.endpoints, key=lambda endpoint: (not endpoint.loaded, endpoint.queue)))

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.retry_after if isinstance(error, ServiceError) else None
            return max(_BACKOFF(state), asked.total_seconds() if asked else 0.0)

        def stop(state: RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            return state.attempt_number >= TRIES and not (patient and isinstance(error, Overloaded))

        def before_sleep(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, ServiceError):
                asking.failed(error, candidate, Verdict.RETRY, timedelta(seconds=state.upcoming_sleep))

        retrying = AsyncRetrying(
            stop=stop,
            wait=wait,
            retry=retry_if_exception(lambda error: isinstance(error, ServiceError) and _retryable(error)),
            before_sleep=before_sleep,
            reraise=True,
        )
        return await retrying(self._attempt, asking, candidate, turns)

    async def _attempt(self, asking: "_Asking", candidate: Candidate, turns: Iterator[Endpoint]) -> TaskResult:
        """One call to the endpoint whose turn it is."""
        by = asking.started(candidate, next(turns))
        call = InferRequest(model=by.model_id, revision=by.revision, call_id=uuid4().hex)
        call.MergeFrom(asking.request)
        begun = time.monotonic()
        async with self._reaching(by.endpoints[0].address) as stub, _followed(stub, call.call_id, asking):
            reply = await stub.Infer(call, timeout=self._seconds(), metadata=caller.metadata())
        check(reply, asking.spec)
        result = TaskResult(task_id=asking.task_id, attempt=asking.attempt, by=by, outputs=reply.outputs)
        result.by.revision = reply.revision or by.revision
        result.usage.CopyFrom(reply.usage)
        result.usage.elapsed.FromTimedelta(timedelta(seconds=time.monotonic() - begun))
        return result

    def _seconds(self) -> float:
        deadline = caller.current().deadline
        left = deadline.ToNanoseconds() / 1e9 - time.time() if deadline.seconds else self._attempt_seconds
        return max(0.001, min(left, self._attempt_seconds))

    @asynccontextmanager
    async def _reaching(self, address: str) -> "AsyncIterator[rpc.ExpertServiceAsyncStub]":
        """An expert at an address; one that cannot be reached is dialled anew the next time, if there is one."""
        if address not in self._lines:
            self._lines[address] = _Line(address)
        line = self._lines[address]
        line.calls += 1
        try:
            yield rpc.ExpertServiceStub(line.channel)
        except grpc.aio.AioRpcError as error:
            line.broken = line.broken or error.code() is grpc.StatusCode.UNAVAILABLE
            raise from_rpc(error) from error
        finally:
            line.calls -= 1
            if line.broken and not line.calls:
                del self._lines[address]
                await line.channel.close()


class _Line:
    """A channel to an address, with the calls that are under way on it."""

    def __init__(self, address: str) -> None:
        self.channel = dial(address)
        self.calls = 0
        self.broken = False


class _Asking:
    """One task on its way through its candidates: counts attempts and tells of them."""

    def __init__(self, task_id: int, request: InferRequest, spec: TaskSpec, emit: Emit, last_attempt: int) -> None:
        self.task_id = task_id
        self.request = request
        self.spec = spec
        self.emit = emit
        self.attempt = last_attempt

    def started(self, candidate: Candidate, endpoint: Endpoint) -> Candidate:
        """The candidate with the one endpoint this attempt goes to."""
        self.attempt += 1
        by = Candidate()
        by.CopyFrom(candidate)
        del by.endpoints[:]
        by.endpoints.append(endpoint)
        self._tell(RunEvent(task_started=TaskStarted(by=by)))
        return by

    def failed(self, error: ServiceError, by: Candidate, then: Verdict, delay: timedelta = timedelta()) -> None:
        event = AttemptFailed(failure=to_failure(error), by=by, next=then.value)
        event.delay.FromTimedelta(delay)
        self._tell(RunEvent(attempt_failed=event))

    def progressed(self, fraction: float, message: str) -> None:
        self._tell(RunEvent(task_progress=TaskProgress(fraction=fraction, message=message)))

    def _tell(self, event: RunEvent) -> None:
        event.task_id, event.attempt = self.task_id, self.attempt
        self.emit(event)


def to_failure(error: ServiceError) -> Failure:
    """The error as an event keeps it."""
    failure = Failure(
        reason=error.reason, message=error.message, remedy=error.remedy, port=error.port, code=error.code.name
    )
    if error.retry_after is not None:
        failure.retry_after.FromTimedelta(error.retry_after)
    return failure


def check(reply: InferResponse, spec: TaskSpec) -> None:
    """Holds a reply against the ports of its task.

    Raises:
        CorruptData: a required output is missing, an unknown one is there, or one is of the wrong kind.
    """
    ports = {port.name: port for port in spec.outputs}
    for name in ports.keys() - reply.outputs.keys():
        if ports[name].required:
            raise CorruptData(f"the expert's reply lacks {name}, which {spec.name} promises")
    for name, value in reply.outputs.items():
        if name not in ports:
            raise CorruptData(f"the expert's reply has {name}, which {spec.name} does not know")
        if not _fits(ports[name], value):
            raise CorruptData(
                f"the expert's {name} is {value.WhichOneof('kind') or 'empty'}, which its port cannot carry"
            )


def _fits(port: Port, value: Value) -> bool:
    kind = value.WhichOneof("kind")
    if port.modality == MODALITY_TEXT:
        return kind in {"text", "artifact"}
    if port.modality == MODALITY_JSON:
        return kind in {"json", "artifact"}
    return kind == "artifact"


def _retryable(error: ServiceError) -> bool:
    return verdict(error) is Verdict.RETRY


@asynccontextmanager
async def _followed(stub: "rpc.ExpertServiceAsyncStub", call_id: str, asking: _Asking) -> AsyncIterator[None]:
    """Tells how far a call is, from its second second on; what cannot be followed goes on unfollowed."""

    async def follow() -> None:
        await asyncio.sleep(PROGRESS_AFTER_SECONDS)
        with contextlib.suppress(grpc.aio.AioRpcError):
            stream = stub.Progress(ProgressRequest(call_ids=[call_id]), metadata=caller.metadata(), timeout=3600)
            async for event in stream:
                asking.progressed(event.fraction, event.message)

    following = asyncio.create_task(follow(), name=f"progress-{call_id}")
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])
