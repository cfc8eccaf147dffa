"""A server that speaks the Open Inference Protocol over gRPC, as Triton and KServe do."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc
from grpc import StatusCode

from experts.endpoints.http_errors import without_secrets
from experts.host.handler import Inputs, Outputs, Parameters
from experts.served import oip, tensors
from experts.served.backend import Asked
from experts.served.config import Model, Server
from services.common.errors import (
    CorruptData,
    DeadlineExceeded,
    FailedPrecondition,
    ModelFailed,
    NotFound,
    Overloaded,
    ServiceError,
    Unavailable,
)

CHECK_SECONDS = 5.0
_LONGEST = 200


class OipServer:
    """Open within `open()`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._channel: grpc.aio.Channel | None = None
        self._slots = asyncio.Semaphore(server.concurrency)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connects when first asked."""
        parts, most = urlsplit(self._server.address), self._server.reply_bytes
        options = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", most))
        if parts.scheme == "grpcs":
            channel = grpc.aio.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), options)
        else:
            channel = grpc.aio.insecure_channel(parts.netloc, options)
        async with channel as self._channel:
            yield
        self._channel = None

    async def problems(self) -> Mapping[str, ServiceError]:
        """By name of the model what keeps it from answering."""
        models = self._server.models
        found = await asyncio.gather(*map(self._problem, models))
        return {model.name: problem for model, problem in zip(models, found, strict=True) if problem}

    def prepare(self, model: Model, task: str, inputs: Inputs, parameters: Parameters) -> Asked:
        """The tensors."""
        return Asked(model, task, inputs, parameters, tensors.request(model, inputs, parameters))

    async def ask(self, asked: Asked) -> Any:
        async with self._slots:
            with self._explained(asked.model.name):
                return await self._call("ModelInfer", asked.ready, self._server.timeout_seconds)

    def finish(self, asked: Asked) -> Outputs:
        """The tensors that came back."""
        return tensors.outputs(asked.model, asked.answer, asked.parameters)

    async def _problem(self, model: Model) -> ServiceError | None:
        try:
            with self._explained(model.name):
                request = oip.ModelReadyRequest(name=model.name, version=model.version)
                reply = await self._call("ModelReady", request, CHECK_SECONDS)
        except ServiceError as error:
            return error
        if reply.ready:
            return None
        return Unavailable(f"{self._server.name} says {model.name} is not ready", remedy="load it there")

    async def _call(self, method: str, request: Any, seconds: float) -> Any:
        if self._channel is None:
            raise Unavailable(f"{self._server.name} is not open yet", remedy="try again shortly")
        reply = {"ModelInfer": oip.ModelInferResponse, "ModelReady": oip.ModelReadyResponse}[method]
        call: Any = self._channel.unary_unary(
            oip.SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        key = self._server.key
        return await call(request, timeout=seconds, metadata=(("authorization", f"Bearer {key}"),) if key else None)

    @contextmanager
    def _explained(self, model_name: str) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            if "larger than max" in (error.details() or ""):  # gRPC's own words, on this side
                raise self._too_large(model_name) from error
            raise self._failure(error, model_name) from error

    def _too_large(self, model: str) -> CorruptData:
        what = f"{self._server.name} answered for {model} with more than {self._server.reply_bytes:,} bytes"
        return CorruptData(what, remedy="ask for less, or raise its reply_bytes")

    def _failure(self, error: grpc.aio.AioRpcError, model: str) -> ServiceError:
        where, said = self._server.name, without_secrets(error.details() or "", self._server.key)[:_LONGEST]
        match error.code():
            case StatusCode.UNAVAILABLE:
                return Unavailable(f"{where} cannot be reached", remedy="see whether it runs")
            case StatusCode.DEADLINE_EXCEEDED:
                what = f"{where} did not answer for {model} in time"
                return DeadlineExceeded(what, remedy="send a smaller input, or raise its timeout_seconds")
            case StatusCode.RESOURCE_EXHAUSTED:
                return Overloaded(f"{where} takes no more calls for {model} now", remedy="try again later")
            case StatusCode.NOT_FOUND:
                return NotFound(f"{where} has no model {model}", reason="MODEL", remedy="correct its name or load it")
            case StatusCode.UNAUTHENTICATED | StatusCode.PERMISSION_DENIED:
                remedy = "put a key for it into the variable that key_variable names"
                return FailedPrecondition(f"{where} refuses the key", reason="LOAD_FAILED", remedy=remedy)
            case _:
                what = f"{where} failed with {error.code().name} for {model}: {said}"
                return ModelFailed(what, remedy="see that the tensors in the configuration are the model's")
