"""gRPC ExpertService: Infer, Describe and Progress."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from experts.host import conversion, metering
from experts.host.active_calls import ActiveCalls, ProgressUpdate
from experts.host.description import Description
from experts.host.expert import Expert, Offer
from experts.host.handler import Outputs
from experts.host.inference import CallSteps, Inference
from experts.host.input_validation import InputValidator, ParameterReader, has_files
from experts.host.model_manager import Models
from experts.host.model_slot import ModelSlot
from experts.host.settings import Settings
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import DeadlineExceeded, ServiceError, to_status

Context = grpc.aio.ServicerContext[Any, Any]

QUEUE, LOADED, FREE = "expert-queue", "expert-loaded", "expert-free-bytes"
"""Trailing metadata of Infer: calls waiting or running; ids of loaded models, separated by commas; free bytes."""

USED = "expert-used"
"""Trailing metadata of a failed call: the seconds that it used, by pool."""


@dataclass(frozen=True)
class _ServedModel:
    """One model for one task, with the readers and the writer of its calls."""

    model: ModelSlot
    inputs: InputValidator
    parameters: ParameterReader
    write: Callable[[Outputs], conversion.ConvertedOutputs]

    @classmethod
    def of(cls, offer: Offer, model: ModelSlot) -> "_ServedModel":
        write = partial(conversion.convert_outputs, conversion.output_ports(offer.spec), offer.card.id)
        return cls(model, InputValidator(offer.spec), ParameterReader(offer.spec), write)


class ExpertServicer(rpc.ExpertServiceServicer):
    """Serves the models of one expert."""

    def __init__(
        self,
        expert: Expert,
        models: Models,
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
        except ServiceError as error:  # not raised: the interceptor would drop the trailing metadata
            status, usage = to_status(error), (USED, metering.format_usage(used))
            await context.abort(status.code, status.details, (*status.trailing_metadata, *self._trailer(), usage))
        context.set_trailing_metadata(self._trailer())
        return reply

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
        usage = _usage(busy=done.busy_seconds, elapsed=time.perf_counter() - started_at, used=used)
        return pb.InferResponse(outputs=outputs, revision=model.revision, usage=usage)

    def _timeout(self, deadline: float) -> float | None:
        """Maximum seconds of a call; None if its deadline is earlier, since a timer costs as much as all checks."""
        seconds = self._settings.call_seconds
        return seconds if deadline > time.monotonic() + seconds else None

    def _find(self, request: pb.InferRequest) -> "_ServedModel":
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


def _deadline(context: Context) -> float:
    """When the caller stops waiting, by time.monotonic()."""
    remaining = context.time_remaining()
    return inf if remaining is None else time.monotonic() + remaining


def _call_timed_out(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the call took longer than {seconds:g} s",
        remedy="send a smaller input, or let the operator raise EXPERT_CALL_SECONDS",
    )


def _usage(*, busy: float, elapsed: float, used: Mapping[str, float]) -> Usage:
    usage = Usage()  # filled in place, which takes half as long as copying its parts
    _set_seconds(usage.busy, busy)
    _set_seconds(usage.elapsed, elapsed)
    for pool, seconds in used.items():
        usage.pool_seconds[pool] = seconds
    return usage


def _set_seconds(duration: Duration, seconds: float) -> None:
    duration.seconds, duration.nanos = divmod(int(seconds * 1e9), 10**9)
