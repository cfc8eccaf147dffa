"""gRPC calls, each with the identity its key proves, held to its limits."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from gateway.auth.authenticator import Gate
from gateway.auth.bearer import token
from gateway.auth.identity import Identity, identified_as
from gateway.auth.session_revocation import Presence
from gateway.limits.quotas import Meter, Quotas


class Identified(grpc.aio.ServerInterceptor):
    """Serves each call as whoever its key belongs to; health and reflection, which say nothing of anybody, to all."""

    def __init__(self, gate: Gate, quotas: Quotas, presence: Presence) -> None:
        self._gate = gate
        self._quotas = quotas
        self._presence = presence

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith("/grpc."):
            return handler
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._identified(handler.unary_unary), **codec)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._identified(handler.unary_stream), **codec)
        return grpc.stream_unary_rpc_method_handler(self._identified(handler.stream_unary), **codec)

    def _identified(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            who = await self._admitted(context)
            meter = self._quotas.meter(who)
            async with self._presence.of(who):
                with identified_as(who):
                    return await self._served(method, request, context, meter)

        return call

    @staticmethod
    async def _served(method: Callable[..., Any], request: Any, context: Any, meter: Meter | None) -> Any:
        if not meter:
            return await method(request, context)
        try:
            return await method(await _metered(request, meter), context)
        finally:
            await meter.settle()

    async def _admitted(self, context: grpc.aio.ServicerContext[Any, Any]) -> Identity:
        sent = dict(context.invocation_metadata() or ()).get("authorization", "")
        who = await self._gate.identity(token(str(sent)), _address(context.peer()))
        (await self._quotas.request(who)).check()
        return who


async def _metered(request: Any, meter: Meter) -> Any:
    if hasattr(request, "ByteSize"):
        await meter.take(request.ByteSize())
        return request
    return _each_metered(request, meter)


async def _each_metered(requests: AsyncIterator[Any], meter: Meter) -> AsyncIterator[Any]:
    async for request in requests:
        await meter.take(request.ByteSize())
        yield request


def _address(peer: str) -> str:
    """Without kind and port: ipv4:10.0.0.1:5000 and ipv6:%5B::1%5D:5000."""
    return peer.partition(":")[2].rpartition(":")[0].removeprefix("%5B").removesuffix("%5D")
