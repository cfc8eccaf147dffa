"""The one Infer, and what else an expert is asked."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from experts.host import convert, form
from experts.host.describe import Description
from experts.host.expert import Expert
from experts.host.inference import Inference, Steps
from experts.host.models import Models
from experts.host.parameters import ParameterReader
from experts.host.progress import CallsUnderWay, Step
from experts.host.settings import Settings
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.types_pb2 import PRIORITY_BATCH, Usage
from services.runtime import caller
from services.runtime.artifacts import ArtifactStore
from services.runtime.errors import DeadlineExceeded, ServiceError, to_status

Context = grpc.aio.ServicerContext[Any, Any]

QUEUE, LOADED, FREE = "expert-queue", "expert-loaded", "expert-free-bytes"
"""Trailing metadata of Infer: calls waiting or running; ids of loaded models, with commas between; bytes free."""


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
        self._parameters = {offer.spec.name: ParameterReader(offer.spec) for offer in expert.offers}

    async def Infer(self, request: pb.InferRequest, context: Context) -> pb.InferResponse:
        try:
            reply = await self._inferred(request, context)
        except ServiceError as error:  # raised further it would lose the trailer
            status = to_status(error)
            await context.abort(status.code, status.details, (*status.trailing_metadata, *self._trailer()))
        context.set_trailing_metadata(self._trailer())
        return reply

    async def _inferred(self, request: pb.InferRequest, context: Context) -> pb.InferResponse:
        began, asking = time.perf_counter(), caller.current()
        tenant, background = asking.tenant, asking.priority == PRIORITY_BATCH
        offer = self._expert.find(request.task, request.model)
        model = self._models.get(request.task, offer.card.id)
        model.check(request.revision)
        parameters = self._parameters[request.task].read(request.parameters_json)
        given = form.arguments(offer.spec, request, max_bytes=self._settings.max_input_bytes)
        with (
            model.queue.place(background=background),
            self._calls.entered(tenant, request.call_id, background=background, deadline=_deadline(context)) as call,
        ):
            async with _within(self._settings.call_seconds):
                read = await convert.fetched(given, self._store, tenant, max_bytes=self._settings.max_input_bytes)
                write = partial(convert.written, offer.spec, offer.card.id)
                done = await self._inference.run(model, Steps(read, parameters, write, call))
                model.check(request.revision)  # where the card says nothing, it is known since the model was loaded
                outputs = await convert.kept(done.result, self._store, tenant)
        usage = _usage(busy=done.busy_seconds, elapsed=time.perf_counter() - began)
        return pb.InferResponse(outputs=outputs, revision=model.revision, usage=usage)

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        return self._description.since(request.known_revision)

    async def Progress(self, request: pb.ProgressRequest, context: Context) -> None:  # type: ignore[override]  # stubs only know generators
        async def tell(call_id: str, step: Step) -> None:
            await context.write(pb.ProgressEvent(call_id=call_id, fraction=step.fraction, message=step.message))

        await self._calls.follow(caller.current().tenant, request.call_ids, tell)

    def _trailer(self) -> tuple[tuple[str, str], ...]:
        models = self._models
        queue, loaded = str(models.waiting + models.running), ",".join(sorted(models.loaded))
        return (QUEUE, queue), (LOADED, loaded), (FREE, str(models.free_bytes))


def _deadline(context: Context) -> float:
    """When the caller stops waiting, on time.monotonic()'s clock."""
    remaining = context.time_remaining()
    return inf if remaining is None else time.monotonic() + remaining


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise DeadlineExceeded(
            f"the call took longer than {seconds:g} s",
            remedy="send a smaller input, or let the operator raise EXPERT_CALL_SECONDS",
        ) from None


def _usage(*, busy: float, elapsed: float) -> Usage:
    return Usage(busy=_duration(busy), elapsed=_duration(elapsed))


def _duration(seconds: float) -> Duration:
    whole, part = divmod(int(seconds * 1e9), 10**9)
    return Duration(seconds=whole, nanos=part)
