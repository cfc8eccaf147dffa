"""gRPC interceptor: authenticates each call and enforces its rate limits and quotas."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from gateway.auth.authenticator import Authenticator
from gateway.auth.bearer import token
from gateway.auth.identity import Identity, identified_as
from gateway.auth.session_revocation import ActiveSessions
from gateway.limits.quotas import Meter, Quotas


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """Serves each call with its authenticated identity; health and reflection need none."""

    def __init__(self, authenticator: Authenticator, quotas: Quotas, sessions: ActiveSessions) -> None:
        self._authenticator = authenticator
        self._quotas = quotas
        self._sessions = sessions

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith("/grpc."):
            return handler
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._authenticated(handler.unary_unary), **codec)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._authenticated(handler.unary_stream), **codec)
        return grpc.stream_unary_rpc_method_handler(self._authenticated(handler.stream_unary), **codec)

    def _authenticated(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            identity = await self._admit(context)
            meter = self._quotas.meter(identity)
            async with self._sessions.track(identity):
                with identified_as(identity):
                    return await self._serve(method, request, context, meter)

        return call

    @staticmethod
    async def _serve(method: Callable[..., Any], request: Any, context: Any, meter: Meter | None) -> Any:
        if not meter:
            return await method(request, context)
        try:
            return await method(await _metered(request, meter), context)
        finally:
            await meter.flush()

    async def _admit(self, context: grpc.aio.ServicerContext[Any, Any]) -> Identity:
        sent = dict(context.invocation_metadata() or ()).get("authorization", "")
        identity = await self._authenticator.authenticate(token(str(sent)), _address(context.peer()))
        (await self._quotas.request(identity)).check()
        return identity


async def _metered(request: Any, meter: Meter) -> Any:
    if hasattr(request, "ByteSize"):
        await meter.add(request.ByteSize())
        return request
    return _each_metered(request, meter)


async def _each_metered(requests: AsyncIterator[Any], meter: Meter) -> AsyncIterator[Any]:
    async for request in requests:
        await meter.add(request.ByteSize())
        yield request


def _address(peer: str) -> str:
    """Extracts the IP address of a peer such as ipv4:10.0.0.1:5000 or ipv6:%5B::1%5D:5000."""
    return peer.partition(":")[2].rpartition(":")[0].removeprefix("%5B").removesuffix("%5D")
