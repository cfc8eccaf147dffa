"""Client of the expert under check, and descriptions of its errors."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from gateway.conformance import samples
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, Caller
from protos.hugginggpt.v1.expert_pb2 import (
    DescribeRequest,
    DescribeResponse,
    InferBatchItem,
    InferBatchRequest,
    InferBatchResponse,
    InferRequest,
    InferResponse,
)
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common import call_context, reflection
from services.common.artifacts import ArtifactStore
from services.common.errors import DeadlineExceeded, ServiceError, from_rpc

NOT_LOADED = "NOT_LOADED"
"""Reason of a call abandoned because its model did not load in time."""

_TEXTS = {
    StatusCode.ABORTED: "aborted",
    StatusCode.ALREADY_EXISTS: "refused because it already exists",
    StatusCode.DATA_LOSS: "damaged data",
    StatusCode.FAILED_PRECONDITION: "refused in the expert's present state",
    StatusCode.INTERNAL: "failed inside the expert",
    StatusCode.INVALID_ARGUMENT: "refused as invalid",
    StatusCode.NOT_FOUND: "refused because it does not exist",
    StatusCode.OUT_OF_RANGE: "refused as out of range",
    StatusCode.PERMISSION_DENIED: "refused as not permitted",
    StatusCode.RESOURCE_EXHAUSTED: "refused for lack of capacity",
    StatusCode.UNAUTHENTICATED: "refused as not authenticated",
    StatusCode.UNAVAILABLE: "refused as temporarily unavailable",
}

_COMPLETE_TEXTS = {
    StatusCode.CANCELLED: "the expert cancelled the call",
    StatusCode.UNIMPLEMENTED: "the expert does not implement the method",
}
"""Texts of codes to which the error's message adds nothing."""


def failure_text(error: ServiceError, seconds: float) -> str:
    """Describes an error; adds code and reason where the expert chose them.

    Args:
        error: error of a call.
        seconds: time limit of the call.
    """
    if error.reason == NOT_LOADED:
        return error.message
    if error.code is StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {seconds:g} s"
    if is_broken_connection(error):
        return "the connection broke during the call: the process died or closed it"
    if error.code in _COMPLETE_TEXTS:
        return _COMPLETE_TEXTS[error.code]
    if error.code is StatusCode.UNKNOWN:
        return f"the expert raised an exception that it does not map to a status: {error.message}"
    at = f" at port {error.port}" if error.port else ""
    return f"{_TEXTS[error.code]} ({error.code.name}/{error.reason}){at}: {error.message}"


def is_broken_connection(error: ServiceError) -> bool:
    """Whether the connection broke: an UNAVAILABLE error that an expert returns itself has a remedy."""
    return error.code is StatusCode.UNAVAILABLE and not error.remedy


TENANT = "default"

LOADED_POLL_SECONDS = 0.5
"""Interval at which Describe is polled until a model is loaded."""

RECONNECT_SECONDS, RECONNECT_PAUSE = 2.0, 0.05
"""Time to wait for a new connection after one broke, and pause between tries, in seconds."""

Metadata = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Outcome:
    """Result of a call."""

    reply: InferResponse
    """Empty if the call failed."""
    error: ServiceError | None
    trailer: Mapping[str, str]
    seconds: float
    limit: float
    """Time limit of the call in seconds."""

    @property
    def summary(self) -> str:
        """The error with code, reason and port; or that the call succeeded."""
        return failure_text(self.error, self.limit) if self.error else "the call succeeds"


@dataclass(frozen=True)
class BatchOutcome:
    """Result of a call of InferBatch."""

    reply: InferBatchResponse
    """Empty if the call failed."""
    error: ServiceError | None
    trailer: Mapping[str, str]

    @property
    def is_offered(self) -> bool:
        """Whether the expert implements InferBatch."""
        return not self.error or self.error.code is not StatusCode.UNIMPLEMENTED


class Target:
    """Calls an expert as the orchestrator does.

    Args:
        channel: connection to the expert.
        store: artifact store for samples and results; the expert must use the same.
        caller: tenant, data policy and priority to send.
        seconds: limit of a call whose model is loaded.
        load_seconds: limit of loading a model.
    """

    def __init__(
        self, channel: grpc.aio.Channel, store: ArtifactStore, caller: Caller, seconds: float, load_seconds: float
    ) -> None:
        self.store, self.seconds, self.load_seconds = store, seconds, load_seconds
        self._channel = channel
        self.stub = ExpertServiceStub(channel)
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self._metadata = _metadata(caller)
        self.local_metadata = _metadata(Caller(tenant=TENANT, policy=DATA_POLICY_LOCAL, priority=caller.priority))
        """Metadata of calls with the policy local."""

    async def describe(self, known: str = "") -> DescribeResponse:
        return await self.stub.Describe(DescribeRequest(known_revision=known), timeout=self.seconds)

    async def serves(self, name: str) -> bool | None:
        """Whether grpc.health.v1 reports a name as SERVING; None if the name is unknown."""
        try:
            request = health_pb2.HealthCheckRequest(service=name)
            reply = await self._health.Check(request, timeout=self.seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    def watch(self, name: str) -> Any:
        return self._health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=self.seconds)

    async def request(self, spec: TaskSpec, card: ModelCard) -> InferRequest:
        """Returns a call with samples on all required ports."""
        request = InferRequest(task=spec.name, model=card.id, revision=card.revision)
        for port in (port for port in spec.inputs if port.required or port.name == samples.INSTRUCTION):
            sample = await samples.value(port, self.store, TENANT)
            if port.many:
                request.lists[port.name].values.extend([sample, Value(text="He was sad.")][: 2 if sample.text else 1])
            else:
                request.inputs[port.name].CopyFrom(sample)
        if values := samples.parameters(spec):
            request.parameters_json = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return request

    async def services(self) -> list[str]:
        """Services that reflection lists, by version v1alpha if the expert has no v1.

        Raises:
            grpc.aio.AioRpcError: the expert has neither.
        """
        v1alpha, v1 = reflection.SERVICES
        try:
            return await self._services(v1)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            return await self._services(v1alpha)

    async def _services(self, version: str) -> list[str]:
        method: Any = self._channel.stream_stream(  # both versions have the same messages
            f"/{version}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        replies = method(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=self.seconds)
        return [each.name async for reply in replies for each in reply.list_services_response.service]

    def start(self, request: InferRequest, seconds: float | None = None, *, metadata: Metadata | None = None) -> Any:
        """Starts a call: awaitable, cancellable, with trailing metadata."""
        sent = self._metadata if metadata is None else metadata
        return self.stub.Infer(request, timeout=seconds or self.seconds, metadata=sent)

    async def infer(
        self, request: InferRequest, seconds: float | None = None, *, metadata: Metadata | None = None
    ) -> Outcome:
        """Calls the expert; a failure is part of the outcome."""
        start, call = time.perf_counter(), self.start(request, seconds, metadata=metadata)
        reply, error = InferResponse(), None
        try:
            reply = await call
        except grpc.aio.AioRpcError as raised:
            error = from_rpc(raised)
        return await self._outcome(call, reply, error, start, seconds or self.seconds)

    async def infer_batch(
        self, request: InferRequest, items: Sequence[InferBatchItem], *, metadata: Metadata | None = None
    ) -> BatchOutcome:
        """Calls InferBatch with the task, model and parameters of a call; a failure is part of the outcome."""
        batch = InferBatchRequest(
            task=request.task,
            model=request.model,
            revision=request.revision,
            parameters_json=request.parameters_json,
            items=items,
        )
        sent = self._metadata if metadata is None else metadata
        call: Any = self.stub.InferBatch(batch, timeout=self.seconds, metadata=sent)
        reply, error = InferBatchResponse(), None
        try:
            reply = await call
        except grpc.aio.AioRpcError as raised:
            error = from_rpc(raised)
        return BatchOutcome(reply, error, await _trailer(call))

    async def infer_after_loading(self, request: InferRequest) -> Outcome:
        """Calls a model that may not be loaded yet; the time limit starts when the model is loaded."""
        start, call = time.perf_counter(), self.start(request, self.load_seconds + self.seconds)
        reply = InferResponse()
        error: ServiceError | None = None
        answering = asyncio.ensure_future(_awaited(call))
        loading = asyncio.create_task(self._until_loaded(request.model), name="loading")
        try:
            await asyncio.wait([answering, loading], return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                await asyncio.wait([answering], timeout=self.seconds if loading.result() else 0)
            if answering.done():
                reply = answering.result()
            elif loading.result():
                error = DeadlineExceeded("no answer")
            else:
                error = DeadlineExceeded(f"the model is not loaded within {self.load_seconds:g} s", reason=NOT_LOADED)
        except grpc.aio.AioRpcError as raised:
            error = from_rpc(raised)
        finally:
            loading.cancel()
            call.cancel()
            await asyncio.wait([loading, answering])
        return await self._outcome(call, reply, error, start, self.seconds)

    async def is_reachable(self) -> bool:
        """Whether a server still accepts calls at the address.

        A connection alone does not prove it: the system accepts some while it closes the sockets of a dead process.
        """
        request = DescribeRequest()
        try:
            async with asyncio.timeout(RECONNECT_SECONDS):
                while True:
                    await self._channel.channel_ready()
                    try:
                        await self.stub.Describe(request, timeout=RECONNECT_SECONDS / 2)
                    except grpc.aio.AioRpcError as error:
                        if error.code() is not grpc.StatusCode.UNAVAILABLE:
                            return True
                        await asyncio.sleep(RECONNECT_PAUSE)
                    else:
                        return True
        except TimeoutError:
            return False

    async def _until_loaded(self, model: str) -> bool:
        """Waits until the model is loaded; False if that takes longer than load_seconds."""
        end = time.monotonic() + self.load_seconds
        while (left := end - time.monotonic()) > 0:
            try:
                described = await self.stub.Describe(DescribeRequest(), timeout=left)
            except grpc.aio.AioRpcError as error:
                return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED  # the call itself reports other errors
            if model in described.load.loaded:
                return True
            await asyncio.sleep(min(LOADED_POLL_SECONDS, left))
        return False

    async def _outcome(
        self, call: Any, reply: InferResponse, error: ServiceError | None, start: float, limit: float
    ) -> Outcome:
        seconds = time.perf_counter() - start
        return Outcome(reply, error, await _trailer(call), seconds, limit)


async def _trailer(call: Any) -> Mapping[str, str]:
    return {key: value for key, value in (await call.trailing_metadata() or ()) if isinstance(value, str)}


async def _awaited(call: Any) -> InferResponse:
    reply: InferResponse = await call
    return reply


def _metadata(caller: Caller) -> Metadata:
    with call_context.use_caller(caller):
        return call_context.metadata()
