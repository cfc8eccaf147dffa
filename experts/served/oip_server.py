"""Client of servers with the Open Inference Protocol over gRPC, such as Triton and KServe."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc
from grpc import StatusCode

from experts.endpoints.http_errors import redact_secrets
from experts.host.handler import Inputs, Outputs, Parameters
from experts.served import oip_messages, tensors
from experts.served.backend import ServedCall
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
_MAX_LENGTH = 200


class OipServer:
    """Backend of one server; usable within `open()`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._channel: grpc.aio.Channel | None = None
        self._slots = asyncio.Semaphore(server.concurrency)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Creates the channel, which connects on the first call."""
        parts, max_bytes = urlsplit(self._server.address), self._server.reply_bytes
        options = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", max_bytes))
        if parts.scheme == "grpcs":
            channel = grpc.aio.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), options)
        else:
            channel = grpc.aio.insecure_channel(parts.netloc, options)
        async with channel as self._channel:
            yield
        self._channel = None

    async def check_models(self) -> Mapping[str, ServiceError]:
        """Returns the error of each model that is not ready, by model name."""
        models = self._server.models
        problems = await asyncio.gather(*map(self._check_model, models))
        return {model.name: error for model, error in zip(models, problems, strict=True) if error}

    def prepare(self, model: Model, task: str, inputs: Inputs, parameters: Parameters) -> ServedCall:
        """Builds the request with its tensors."""
        return ServedCall(model, task, inputs, parameters, tensors.build_request(model, inputs, parameters))

    async def infer(self, call: ServedCall) -> Any:
        async with self._slots:
            with self._translate_errors(call.model.name):
                return await self._call("ModelInfer", call.request, self._server.timeout_seconds)

    def finish(self, call: ServedCall) -> Outputs:
        """Converts the tensors of the answer."""
        return tensors.build_outputs(call.model, call.answer, call.parameters)

    async def _check_model(self, model: Model) -> ServiceError | None:
        try:
            with self._translate_errors(model.name):
                request = oip_messages.ModelReadyRequest(name=model.name, version=model.version)
                reply = await self._call("ModelReady", request, CHECK_SECONDS)
        except ServiceError as error:
            return error
        if reply.ready:
            return None
        return Unavailable(f"{model.name} is not ready on {self._server.name}", remedy="load it there")

    async def _call(self, method: str, request: Any, seconds: float) -> Any:
        if self._channel is None:
            raise Unavailable(f"{self._server.name} is not connected yet", remedy="try again shortly")
        reply = {"ModelInfer": oip_messages.ModelInferResponse, "ModelReady": oip_messages.ModelReadyResponse}[method]
        call: Any = self._channel.unary_unary(
            oip_messages.SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        key = self._server.key
        return await call(request, timeout=seconds, metadata=(("authorization", f"Bearer {key}"),) if key else None)

    @contextmanager
    def _translate_errors(self, model_name: str) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            if "larger than max" in (error.details() or ""):  # message of the local gRPC library
                raise self._too_large_error(model_name) from error
            raise self._translate_status(error, model_name) from error

    def _too_large_error(self, model: str) -> CorruptData:
        message = f"{self._server.name} answered for {model} with more than {self._server.reply_bytes:,} bytes"
        return CorruptData(message, remedy="request a smaller result, or raise its reply_bytes")

    def _translate_status(self, error: grpc.aio.AioRpcError, model: str) -> ServiceError:
        server_name, details = self._server.name, redact_secrets(error.details() or "", self._server.key)[:_MAX_LENGTH]
        match error.code():
            case StatusCode.UNAVAILABLE:
                return Unavailable(f"{server_name} cannot be reached", remedy="check that it is running")
            case StatusCode.DEADLINE_EXCEEDED:
                message = f"{server_name} did not answer for {model} in time"
                return DeadlineExceeded(message, remedy="send a smaller input, or raise its timeout_seconds")
            case StatusCode.RESOURCE_EXHAUSTED:
                return Overloaded(
                    f"{server_name} accepts no more calls of {model} at present", remedy="try again later"
                )
            case StatusCode.NOT_FOUND:
                return NotFound(
                    f"{server_name} has no model {model}", reason="MODEL", remedy="correct its name or load it"
                )
            case StatusCode.UNAUTHENTICATED | StatusCode.PERMISSION_DENIED:
                remedy = "set a valid key in the variable that key_variable names"
                return FailedPrecondition(f"{server_name} refuses the key", reason="LOAD_FAILED", remedy=remedy)
            case _:
                message = f"{server_name} failed with {error.code().name} for {model}: {details}"
                return ModelFailed(message, remedy="check that the tensors in the configuration are the model's")
