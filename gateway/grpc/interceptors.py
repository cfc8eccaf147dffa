"""gRPC interceptors: the call log, and authentication with limits."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from grpc import StatusCode
from structlog.contextvars import get_contextvars

from gateway.auth.authenticator import Authenticator, token
from gateway.auth.identity import CallerFactory, Identity, identified_as
from gateway.auth.session_revocation import ActiveSessions
from gateway.core.runs import valid_run_id
from gateway.limits.quotas import Meter, Quotas
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_UNSPECIFIED, DataPolicy
from services.common.call_context import use_caller
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CallerContext:
    """Sets the caller of a gRPC call from the authenticated identity; caller metadata sent by clients is ignored."""

    callers: CallerFactory

    def __call__(
        self, context: Any, policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED
    ) -> AbstractContextManager[None]:
        """Sets the caller within the block, with the requested data policy.

        Raises:
            PermissionDenied: POLICY.
        """
        sent = dict(context.invocation_metadata() or ())
        return use_caller(self.callers.create(sent.get("x-request-id", ""), policy))


class CallLog(grpc.aio.ServerInterceptor):
    """Logs each call except those of health and reflection."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        kinds = ("unary_unary", "unary_stream", "stream_unary")
        return handler._replace(
            **{kind: _logging(method[1:], handle) for kind in kinds if (handle := getattr(handler, kind))}
        )


def _logging(method: str, handle: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        started, code = time.perf_counter(), StatusCode.OK
        try:
            return await handle(request, context)
        except BaseException as error:
            code = _code(error, context)
            raise
        finally:
            seconds = round(time.perf_counter() - started, 4)
            log.info("call", method=method, code=code.name, seconds=seconds, **_run(request))

    return call


def _code(error: BaseException, context: grpc.aio.ServicerContext[Any, Any]) -> StatusCode:
    match error:
        case ServiceError():
            return error.code
        case grpc.aio.AioRpcError():
            return error.code()
        case asyncio.CancelledError() | grpc.aio.InternalError():  # the latter: the response could not be sent
            return StatusCode.CANCELLED
    return context.code() or StatusCode.INTERNAL


def _run(request: Any) -> dict[str, str]:
    """Id of the run that the call has started or names, as a log field."""
    run_id = get_contextvars().get("run_id") or valid_run_id(getattr(request, "run_id", ""))
    return {"run_id": run_id} if run_id else {}


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
