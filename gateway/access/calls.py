"""gRPC calls, each with the identity its key proves."""

from collections.abc import Callable
from typing import Any

import grpc

from gateway.access.bearer import token
from gateway.access.gate import Gate
from gateway.access.identity import identified_as


class Identified(grpc.aio.ServerInterceptor):
    """Serves each call as whoever its key belongs to; health and reflection, which say nothing of anybody, to all."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

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
            sent = dict(context.invocation_metadata() or ()).get("authorization", "")
            who = await self._gate.identity(token(str(sent)), _address(context.peer()))
            with identified_as(who):
                return await method(request, context)

        return call


def _address(peer: str) -> str:
    """Without kind and port: ipv4:10.0.0.1:5000 and ipv6:%5B::1%5D:5000."""
    return peer.partition(":")[2].rpartition(":")[0]
