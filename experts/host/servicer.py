"""The one Infer, and what else an expert is asked."""

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
from experts.host.active_calls import CallsUnderWay, Step
from experts.host.description import Description
from experts.host.expert import Expert, Offer
from experts.host.handler import Outputs
from experts.host.inference import Inference
from experts.host.input_validation import Form, has_files
from experts.host.model_slot import Model
from experts.host.models import Models
from experts.host.parameters import ParameterReader
from experts.host.pipeline_threads import Steps
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
"""Trailing metadata of Infer: calls waiting or running; ids of loaded models, with commas between; bytes free."""

USED = "expert-used"
"""Where a call fails, its trailing metadata also has the seconds that it used, by pool."""


@dataclass(frozen=True)
class _Served:
    """One model for one kind of task, and how its calls are read and written."""

    model: Model
    form: Form
    parameters: ParameterReader
    write: Callable[[Outputs], conversion.Written]

    @classmethod
    def of(cls, offer: Offer, model: Model) -> "_Served":
        write = partial(conversion.written, conversion.outlets(offer.spec), offer.card.id)
        return cls(model, Form(offer.spec), ParameterReader(offer.spec), write)


class ExpertServicer(rpc.ExpertServiceServicer):
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
        self._calls = CallsUnderWay()
        self._served: dict[tuple[str, str], _Served] = {}
        for offer in expert.offers:
            served = _Served.of(offer, models.get(offer.spec.name, offer.card.id))
            self._served[offer.spec.name, offer.card.id] = served
            self._served.setdefault((offer.spec.name, ""), served)

    async def Infer(self, request: pb.InferRequest, context: Context) -> pb.InferResponse:
        used: dict[str, float] = {}
        try:
            reply = await self._inferred(request, context, used)
        except ServiceError as error:  # raised further it would lose the trailer
            status, took = to_status(error), (USED, metering.written(used))
            await context.abort(status.code, status.details, (*status.trailing_metadata, *self._trailer(), took))
        context.set_trailing_metadata(self._trailer())
        return reply

    async def _inferred(self, request: pb.InferRequest, context: Context, used: dict[str, float]) -> pb.InferResponse:
        began, asking = time.perf_counter(), call_context.current()
        tenant, background = asking.tenant, asking.priority == PRIORITY_BATCH
        served, limit = self._find(request), self._settings.max_input_bytes
        model, parameters = served.model, served.parameters.read(request.parameters_json)
        given = served.form.read(request, max_bytes=limit)
        deadline = _deadline(context)
        with (
            model.queue.place(background=background),
            self._calls.entered(tenant, request.call_id, background=background, deadline=deadline) as call,
        ):
            call.used = used
            try:
                async with asyncio.timeout(self._patience(deadline)):
                    read = await conversion.fetched(given, self._store, tenant, max_bytes=limit)
                    done = await self._inference.run(
                        model, Steps(read, parameters, served.write, call, has_files(given))
                    )
                    model.check(request.revision)  # where the card says nothing, it is known since the model was loaded
                    outputs = await conversion.kept(done.result, self._store, tenant)
            except TimeoutError:
                raise _too_long(self._settings.call_seconds) from None
        usage = _usage(busy=done.busy_seconds, elapsed=time.perf_counter() - began, used=used)
        return pb.InferResponse(outputs=outputs, revision=model.revision, usage=usage)

    def _patience(self, deadline: float) -> float | None:
        """Seconds a call may take; None if its caller stops waiting before: a timer takes as long as all checks."""
        seconds = self._settings.call_seconds
        return seconds if deadline > time.monotonic() + seconds else None

    def _find(self, request: pb.InferRequest) -> "_Served":
        served = self._served.get((request.task, request.model))
        if served is None:
            self._expert.find(request.task, request.model)  # says what is missing
            raise KeyError(request.model)
        served.model.check(request.revision)
        return served

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        return self._description.since(request.known_revision)

    async def Progress(self, request: pb.ProgressRequest, context: Context) -> None:  # type: ignore[override]  # stubs only know generators
        async def tell(call_id: str, step: Step) -> None:
            await context.write(pb.ProgressEvent(call_id=call_id, fraction=step.fraction, message=step.message))

        await self._calls.follow(call_context.current().tenant, request.call_ids, tell)

    def _trailer(self) -> tuple[tuple[str, str], ...]:
        models = self._models
        return (QUEUE, str(models.present)), (LOADED, models.loaded_ids), (FREE, str(models.free_bytes))


def _deadline(context: Context) -> float:
    """When the caller stops waiting, on time.monotonic()'s clock."""
    remaining = context.time_remaining()
    return inf if remaining is None else time.monotonic() + remaining


def _too_long(seconds: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the call took longer than {seconds:g} s",
        remedy="send a smaller input, or let the operator raise EXPERT_CALL_SECONDS",
    )


def _usage(*, busy: float, elapsed: float, used: Mapping[str, float]) -> Usage:
    usage = Usage()  # filled in place: half the time of parts that are made and copied
    _last(usage.busy, busy)
    _last(usage.elapsed, elapsed)
    for pool, seconds in used.items():
        usage.pool_seconds[pool] = seconds
    return usage


def _last(duration: Duration, seconds: float) -> None:
    duration.seconds, duration.nanos = divmod(int(seconds * 1e9), 10**9)
