"""gRPC ExpertService: Infer, InferBatch, Describe and Progress."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration

from experts.host import conversion, metering
from experts.host.active_calls import ActiveCall, ActiveCalls, CallItems, ProgressUpdate
from experts.host.expert import Expert, Offer
from experts.host.handler import Media, Outputs, Parameters
from experts.host.inference import CallSteps, Inference, InferenceResult
from experts.host.input_validation import (
    FILES,
    Argument,
    InputValidator,
    ParameterReader,
    check_item_count,
    has_artifacts,
    has_files,
)
from experts.host.model_manager import ModelManager, ModelSlot, State
from experts.host.settings import Settings
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_EXTERNAL,
    MODEL_STATE_FAILED,
    MODEL_STATE_LOADABLE,
    MODEL_STATE_READY,
    ModelCard,
    ModelState,
)
from protos.hugginggpt.v1.task_pb2 import Port
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context
from services.common.artifacts import INLINE_BYTES, ArtifactStore
from services.common.channel import MESSAGE_BYTES
from services.common.errors import DeadlineExceeded, ServiceError, to_failure, to_status

Context = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")
R = TypeVar("R")

_ItemOutcome = InferenceResult[conversion.ConvertedOutputs] | ServiceError

QUEUE, LOADED, FREE = "expert-queue", "expert-loaded", "expert-free-bytes"
"""Trailing metadata of Infer: calls waiting or running; ids of loaded models, separated by commas; free bytes."""

USED = "expert-used"
"""Trailing metadata of a failed call: the seconds that it used, by pool."""


@dataclass(frozen=True)
class _ServedModel:
    """One model for one task, with the readers of its calls and the ports of its outputs."""

    model: ModelSlot
    inputs: InputValidator
    parameters: ParameterReader
    outputs: Mapping[str, Port]

    @classmethod
    def of(cls, offer: Offer, model: ModelSlot) -> "_ServedModel":
        ports = conversion.output_ports(offer.spec)
        return cls(model, InputValidator(offer.spec), ParameterReader(offer.spec), ports)

    @property
    def returns_files(self) -> bool:
        return any(port.modality in FILES for port in self.outputs.values())

    def write(self, outputs: Outputs, inline_bytes: int = INLINE_BYTES) -> conversion.ConvertedOutputs:
        return conversion.convert_outputs(self.outputs, self.model.id, outputs, inline_bytes)

    def inline_bytes(self, items: int) -> int:
        """Returns the longest inline value with which the outputs of so many items take half of a message."""
        return min(INLINE_BYTES, MESSAGE_BYTES // 2 // (items * len(self.outputs)))


_STATES: dict[State, ModelState.ValueType] = {
    State.LOADABLE: MODEL_STATE_LOADABLE,
    State.READY: MODEL_STATE_READY,
    State.FAILED: MODEL_STATE_FAILED,
}


class Description:
    """Builds Describe responses from an expert and the state of its models."""

    def __init__(self, expert: Expert, models: ModelManager, settings: Settings) -> None:
        self.start_duration: timedelta | None = None
        """Time from the start of the process until it was ready; None before that."""
        self._expert, self._models, self._settings = expert, models, settings
        self._tasks = tuple({offer.spec.name: offer.spec for offer in expert.offers}.values())

    def since(self, known_revision: str) -> pb.DescribeResponse:
        """Returns the description; without tasks and models if the caller knows the current revision."""
        response = self._full_response()
        if response.revision == known_revision:
            return pb.DescribeResponse(revision=known_revision, unchanged=True, load=self.load())
        response.load.CopyFrom(self.load())
        return response

    def load(self) -> pb.ExpertLoad:
        models = self._models
        return pb.ExpertLoad(
            waiting=models.waiting,
            running=models.running,
            loaded=sorted(models.loaded),
            free_bytes=models.free_bytes,
            loading=[_loading(model.id, update) for model in models.all if (update := model.load_progress)],
        )

    def _full_response(self) -> pb.DescribeResponse:
        response = pb.DescribeResponse(
            expert=self._expert.name,
            version=self._expert.version,
            tasks=self._tasks,
            models=[self._card(offer) for offer in self._expert.offers],
            scales_to_zero=self._settings.scales_to_zero,
        )
        if self.start_duration is not None:
            response.start_duration.FromTimedelta(self.start_duration)
        response.revision = hashlib.sha256(response.SerializeToString(deterministic=True)).hexdigest()[:16]
        return response

    def _card(self, offer: Offer) -> ModelCard:
        model, card = self._models.get(offer.spec.name, offer.card.id), ModelCard()
        card.CopyFrom(offer.card)
        card.state, card.revision, card.loaded_bytes = _STATES[model.state], model.revision, model.loaded_bytes
        if not card.region and card.location != MODEL_LOCATION_EXTERNAL:
            card.region = self._settings.region
        if failure := model.failure:
            card.failure = f"{failure.message}; {failure.remedy}"
        for field, seconds in ((card.p50, model.latency.p50), (card.p95, model.latency.p95)):
            if seconds:
                field.FromTimedelta(timedelta(seconds=seconds))
        return card


def _loading(model_id: str, update: ProgressUpdate) -> pb.ModelLoading:
    return pb.ModelLoading(model=model_id, fraction=update.fraction, message=update.message)


class ExpertServicer(rpc.ExpertServiceServicer):
    """Serves the models of one expert."""

    def __init__(
        self,
        expert: Expert,
        models: ModelManager,
        description: Description,
        inference: Inference,
        *,
        store: ArtifactStore,
        settings: Settings,
    ) -> None:
        self._expert, self._models, self._description = expert, models, description
        self._inference, self._store, self._settings = inference, store, settings
        self._calls = ActiveCalls()
        self._served: dict[tuple[str, str], _ServedModel] = {}
        for offer in expert.offers:
            served = _ServedModel.of(offer, models.get(offer.spec.name, offer.card.id))
            self._served[offer.spec.name, offer.card.id] = served
            self._served.setdefault((offer.spec.name, ""), served)

    async def Infer(self, request: pb.InferRequest, context: Context) -> pb.InferResponse:
        used: dict[str, float] = {}
        try:
            reply = await self._infer(request, context, used)
        except ServiceError as error:
            await self._abort(context, error, used)
        context.set_trailing_metadata(self._trailer())
        return reply

    async def InferBatch(self, request: pb.InferBatchRequest, context: Context) -> pb.InferBatchResponse:
        used: dict[str, float] = {}
        try:
            reply = await self._infer_batch(request, context, used)
        except ServiceError as error:
            await self._abort(context, error, used)
        context.set_trailing_metadata(self._trailer())
        return reply

    async def _abort(self, context: Context, error: ServiceError, used: Mapping[str, float]) -> NoReturn:
        """Ends a failed call; if its error were raised, the interceptor would drop the trailing metadata."""
        status, usage = to_status(error), (USED, metering.format_usage(used))
        await context.abort(status.code, status.details, (*status.trailing_metadata, *self._trailer(), usage))

    async def _infer(self, request: pb.InferRequest, context: Context, used: dict[str, float]) -> pb.InferResponse:
        started_at, caller = time.perf_counter(), call_context.current()
        tenant, background = caller.tenant, caller.priority == PRIORITY_BATCH
        served, limit = self._find(request), self._settings.max_input_bytes
        model, parameters = served.model, served.parameters.read(request.parameters_json)
        arguments = served.inputs.read(request, max_bytes=limit)
        deadline = _deadline(context)
        with (
            model.batcher.admit(background=background),
            self._calls.track(tenant, request.call_id, background=background, deadline=deadline) as call,
        ):
            call.used = used
            try:
                async with asyncio.timeout(self._timeout(deadline)):
                    read = await conversion.fetch_inputs(arguments, self._store, tenant, max_bytes=limit)
                    done = await self._inference.run(
                        model, CallSteps(read, parameters, served.write, call, has_files(arguments))
                    )
                    model.check_revision(request.revision)  # the loaded revision may have been unknown before
                    outputs = await conversion.store_outputs(done.result, self._store, tenant)
            except TimeoutError:
                raise _call_timed_out(self._settings.call_seconds) from None
        usage = _usage(call, busy=done.busy_seconds, elapsed=time.perf_counter() - started_at)
        return pb.InferResponse(outputs=outputs, revision=model.revision, usage=usage)

    async def _infer_batch(
        self, request: pb.InferBatchRequest, context: Context, used: dict[str, float]
    ) -> pb.InferBatchResponse:
        started_at, caller, count = time.perf_counter(), call_context.current(), len(request.items)
        tenant, background = caller.tenant, caller.priority == PRIORITY_BATCH
        served, limit = self._find(request), self._settings.max_input_bytes
        model, parameters = served.model, served.parameters.read(request.parameters_json)
        check_item_count(count, model.batcher.capacity(background=background))
        items = served.inputs.read_items(request.items, max_bytes=limit)
        deadline = _deadline(context)
        with (
            model.batcher.admit(count, background=background),
            self._calls.track(tenant, request.call_id, background=background, deadline=deadline) as call,
        ):
            call.used = used
            try:
                async with asyncio.timeout(self._timeout(deadline)):
                    done = await self._run_items(served, items, parameters, call.items(count))
                    model.check_revision(request.revision)  # the loaded revision may have been unknown before
                    results = await self._store_items(done, tenant)
            except TimeoutError:
                raise _call_timed_out(self._settings.call_seconds) from None
        busy = sum(each.busy_seconds for each in done if isinstance(each, InferenceResult))
        usage = _usage(call, busy=busy, elapsed=time.perf_counter() - started_at)
        return pb.InferBatchResponse(results=results, revision=model.revision, usage=usage)

    async def _run_items(
        self,
        served: _ServedModel,
        items: Sequence[Sequence[Argument] | ServiceError],
        parameters: Parameters,
        call: CallItems,
    ) -> list[_ItemOutcome]:
        """Runs the valid items; returns the error of every other one."""
        valid = [item for item in items if not isinstance(item, ServiceError)]
        fetch = partial(
            conversion.fetch_inputs,
            store=self._store,
            tenant=call_context.current().tenant,
            max_bytes=self._settings.max_input_bytes,
        )
        readers = await _for_each(fetch, items, concurrent=any(map(has_artifacts, valid)))
        write = partial(served.write, inline_bytes=served.inline_bytes(len(items)))
        steps = [CallSteps(read, parameters, write, call) for read in readers if not isinstance(read, ServiceError)]
        call.count_ended(len(items) - len(steps))
        with_files = served.returns_files or any(map(has_files, valid))
        done = await self._inference.run_items(served.model, call, steps, with_files=with_files) if steps else []
        remaining = iter(done)
        return [read if isinstance(read, ServiceError) else next(remaining) for read in readers]

    async def _store_items(self, done: Sequence[_ItemOutcome], tenant: str) -> list[pb.InferBatchResult]:
        """Stores the media of the items; returns their results."""

        async def store(item: InferenceResult[conversion.ConvertedOutputs]) -> pb.InferBatchResult:
            return pb.InferBatchResult(outputs=await conversion.store_outputs(item.result, self._store, tenant))

        has_media = any(
            isinstance(output, Media)
            for item in done
            if not isinstance(item, ServiceError)
            for output in item.result.values()
        )
        stored = await _for_each(store, done, concurrent=has_media)
        return [
            pb.InferBatchResult(failure=to_failure(item)) if isinstance(item, ServiceError) else item for item in stored
        ]

    def _timeout(self, deadline: float) -> float | None:
        """Maximum seconds of a call; None if its deadline is earlier, since a timer costs as much as all checks."""
        seconds = self._settings.call_seconds
        return seconds if deadline > time.monotonic() + seconds else None

    def _find(self, request: pb.InferRequest | pb.InferBatchRequest) -> "_ServedModel":
        served = self._served.get((request.task, request.model))
        if served is None:
            self._expert.find(request.task, request.model)  # raises NotFound with the known names
            raise KeyError(request.model)
        served.model.check_revision(request.revision)
        return served

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        return self._description.since(request.known_revision)

    async def Progress(self, request: pb.ProgressRequest, context: Context) -> None:  # type: ignore[override]  # stubs only know generators
        async def report(call_id: str, update: ProgressUpdate) -> None:
            await context.write(pb.ProgressEvent(call_id=call_id, fraction=update.fraction, message=update.message))

        await self._calls.follow(call_context.current().tenant, request.call_ids, report)

    def _trailer(self) -> tuple[tuple[str, str], ...]:
        models = self._models
        return (QUEUE, str(models.present)), (LOADED, models.loaded_ids), (FREE, str(models.free_bytes))


async def _for_each(
    step: Callable[[T], Awaitable[R]], items: Sequence[T | ServiceError], *, concurrent: bool
) -> list[R | ServiceError]:
    """Applies a step to every item that has not failed; an item's ServiceError becomes its result.

    Args:
        step: processes one item.
        items: items, or the errors of those that have failed.
        concurrent: whether to process all at once. A step that waits for nothing costs less than a task.
    """

    async def apply(item: T | ServiceError) -> R | ServiceError:
        if isinstance(item, ServiceError):
            return item
        try:
            return await step(item)
        except ServiceError as error:
            return error

    if not concurrent:
        return [await apply(item) for item in items]
    async with asyncio.TaskGroup() as tasks:
        applied = [tasks.create_task(apply(item)) for item in items]
    return [task.result() for task in applied]


def _deadline(context: Context) -> float:
    """When the caller stops waiting, by time.monotonic()."""
    remaining = context.time_remaining()
    return inf if remaining is None else time.monotonic() + remaining


def _call_timed_out(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the call took longer than {seconds:g} s",
        remedy="send a smaller input, or let the operator raise EXPERT_CALL_SECONDS",
    )


def _usage(call: ActiveCall, *, busy: float, elapsed: float) -> Usage:
    usage = call.llm_usage  # filled in place, which takes half as long as copying its parts
    _set_seconds(usage.busy, busy)
    _set_seconds(usage.elapsed, elapsed)
    for pool, seconds in call.used.items():
        usage.pool_seconds[pool] = seconds
    return usage


def _set_seconds(duration: Duration, seconds: float) -> None:
    duration.seconds, duration.nanos = divmod(int(seconds * 1e9), 10**9)
