"""A server of the Open Inference Protocol whose models are plain functions of arrays."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from experts.served import oip_messages

Compute = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_NAMES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "uint8": "UINT8"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass
class Tensors:
    """Serves models by name; text tensors are lists of bytes, all others arrays."""

    models: dict[str, Compute] = field(default_factory=dict)
    address: str = ""
    ready: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    fails: grpc.StatusCode | None = None
    holds: bool = False
    """Whether calls are never answered."""
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a blocked call is cancelled."""
    reply: bytes | None = None
    """Raw response body for all calls."""
    raw: bool = True
    """Whether outputs are sent as raw bytes instead of typed contents."""

    async def infer(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        self.calls.append(request.model_name)
        if self.reply is not None:
            return self.reply
        if self.holds:
            await self._hold()
        if self.fails:
            await context.abort(self.fails, "the test says so")
        inputs = {
            tensor.name: _read(tensor, raw)
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        response = oip_messages.ModelInferResponse(model_name=request.model_name)
        for name, value in self.models[request.model_name](inputs).items():
            _write(response, name, value, raw=self.raw)
        return response

    async def _hold(self) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def is_ready(self, request: Any, _context: Any) -> Any:
        return oip_messages.ModelReadyResponse(ready=request.name in self.ready)


@asynccontextmanager
async def tensors() -> AsyncIterator[Tensors]:
    fake, server = Tensors(), grpc.aio.server()
    methods = {
        "ModelInfer": (fake.infer, oip_messages.ModelInferRequest),
        "ModelReady": (fake.is_ready, oip_messages.ModelReadyRequest),
    }
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(
            behaviour,
            request_deserializer=request.FromString,
            response_serializer=_serialized,
        )
        for name, (behaviour, request) in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(None)


def _serialized(reply: Any) -> bytes:
    content: bytes = reply if isinstance(reply, bytes) else reply.SerializeToString()
    return content


def _read(tensor: Any, raw: bytes) -> Any:
    if tensor.datatype == "BYTES":
        (length,) = struct.unpack_from("<I", raw)
        return raw[4 : 4 + length]
    return np.frombuffer(raw, dtype=_TYPES[tensor.datatype]).reshape(tuple(tensor.shape))


def _write(response: Any, name: str, value: Any, *, raw: bool) -> None:
    if isinstance(value, bytes):
        tensor = response.outputs.add(name=name, datatype="BYTES", shape=[1])
        packed = struct.pack("<I", len(value)) + value
        if not raw:
            tensor.contents.bytes_contents.append(value)
    else:
        tensor = response.outputs.add(name=name, datatype=_NAMES[str(value.dtype)], shape=value.shape)
        packed = value.tobytes()
        if not raw:
            tensor.contents.fp32_contents.extend(value.reshape(-1).tolist())
    if raw:
        response.raw_output_contents.append(packed)
