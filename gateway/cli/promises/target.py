"""An expert that is being checked: how it is called, and what came of a call."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gateway.cli.promises import samples
from protos.hugginggpt.v1.expert_pb2 import DescribeRequest, DescribeResponse, InferRequest, InferResponse
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from protos.hugginggpt.v1.types_pb2 import DATA_POLICY_LOCAL, Caller, ModelCard, TaskSpec, Value
from services.runtime import caller
from services.runtime.artifacts import ArtifactStore
from services.runtime.errors import ServiceError, from_rpc

TENANT = "default"

Metadata = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a call."""

    reply: InferResponse
    """Empty if there is an error."""
    error: ServiceError | None
    trailer: Mapping[str, str]
    seconds: float

    @property
    def told(self) -> str:
        """The error as its code, reason and port."""
        if not self.error:
            return "an answer"
        at = f" at port {self.error.port}" if self.error.port else ""
        return f"{self.error.code.name}/{self.error.reason}{at}: {self.error.message}"


class Target:
    """An expert, called as the house calls it.

    Args:
        channel: to it.
        store: where samples are put, and results looked for.
        who: on whose behalf.
        seconds: how long a call may take.
    """

    def __init__(self, channel: grpc.aio.Channel, store: ArtifactStore, who: Caller, seconds: float) -> None:
        self.store, self.seconds = store, seconds
        self.stub = ExpertServiceStub(channel)
        self._health: Any = health_pb2_grpc.HealthStub(channel)
        self._metadata = _metadata(who)
        self._reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]  # any channel will do
        self.local = _metadata(Caller(tenant=TENANT, policy=DATA_POLICY_LOCAL, priority=who.priority))
        """Of calls whose data may not leave the house."""

    async def describe(self, known: str = "") -> DescribeResponse:
        return await self.stub.Describe(DescribeRequest(known_revision=known), timeout=self.seconds)

    async def serves(self, name: str) -> bool | None:
        """Whether grpc.health.v1 says that a name serves; None if it knows no such name."""
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
        """A call with samples on all ports that are required."""
        request = InferRequest(task=spec.name, model=card.id, revision=card.revision)
        for port in (port for port in spec.inputs if port.required or port.name == samples.INSTRUCTION):
            sample = await samples.value(port, self.store, TENANT)
            if port.many:
                request.lists[port.name].values.extend([sample, Value(text="He was sad.")][: 2 if sample.text else 1])
            else:
                request.inputs[port.name].CopyFrom(sample)
        if given := samples.parameters(spec):
            request.parameters_json = json.dumps(given, sort_keys=True, separators=(",", ":"))
        return request

    async def services(self) -> list[str]:
        """Those it names by reflection."""
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
        replies = self._reflection.ServerReflectionInfo(iter(asked), timeout=self.seconds)
        return [each.name async for reply in replies for each in reply.list_services_response.service]

    def start(self, request: InferRequest, seconds: float | None = None, *, metadata: Metadata | None = None) -> Any:
        """A call under way: awaitable, cancellable, with trailing metadata."""
        carried = self._metadata if metadata is None else metadata
        return self.stub.Infer(request, timeout=seconds or self.seconds, metadata=carried)

    async def infer(
        self, request: InferRequest, seconds: float | None = None, *, metadata: Metadata | None = None
    ) -> Outcome:
        """A call, whatever comes of it."""
        begun, call = time.perf_counter(), self.start(request, seconds, metadata=metadata)
        reply, error = InferResponse(), None
        try:
            reply = await call
        except grpc.aio.AioRpcError as raised:
            error = from_rpc(raised)
        took = time.perf_counter() - begun
        trailer = {key: value for key, value in (await call.trailing_metadata() or ()) if isinstance(value, str)}
        return Outcome(reply, error, trailer, took)

    async def all(self, request: InferRequest, count: int) -> list[Outcome]:
        """So many calls at the same time."""
        return await asyncio.gather(*(self.infer(request) for _ in range(count)))


def _metadata(who: Caller) -> Metadata:
    with caller.acting_for(who):
        return caller.metadata()
