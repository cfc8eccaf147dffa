"""Where calls enter a server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc import StatusCode

from services.common import call_context
from services.common.errors import InvalidRequest, ServiceError, from_rpc, to_status

log = structlog.get_logger(__name__)


class Boundary(grpc.aio.ServerInterceptor):
    """Where a call enters: its caller becomes the current one, and what it raises becomes a status.

    So does a message that cannot be read: left alone, gRPC would name our classes to the caller.
    """

    def __init__(self) -> None:
        self._bounded: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        known, bounded = self._bounded.get(method, (None, None))
        if known is not handler:
            bounded = _bounded(handler)
            self._bounded[method] = handler, bounded
        return bounded


def _bounded(handler: Any) -> Any:
    """The handler of a method, within the boundary."""
    codec = {
        "request_deserializer": _reading(handler.request_deserializer),
        "response_serializer": handler.response_serializer,
    }
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(_guarded(handler.unary_unary), **codec)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(_guarded(handler.unary_stream), **codec)
    if handler.stream_unary:
        return grpc.stream_unary_rpc_method_handler(_guarded(handler.stream_unary, _each_sound), **codec)
    return handler


def _reading(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Gives a message that cannot be read as the error it is, to be raised where errors are told."""

    def read(message: bytes) -> Any:
        try:
            return deserialize(message)
        except DecodeError as error:
            if "UTF-8" in str(error):
                return InvalidRequest("a text is not UTF-8", reason="NOT_UTF8", remedy="send text as UTF-8")
            return InvalidRequest("the message is malformed", remedy="make it with code generated from the protos")

    return read


def _sound(request: Any) -> Any:
    if isinstance(request, ServiceError):
        raise request
    return request


async def _each_sound(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _sound(request)


def _guarded(
    method: Callable[..., Awaitable[Any]], sound: Callable[[Any], Any] = _sound
) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            with call_context.acting_for(call_context.from_metadata(context.invocation_metadata())):
                return await method(sound(request), context)
        except grpc.aio.AbortError:
            raise
        except ServiceError as error:
            await context.abort_with_status(to_status(error))
        except grpc.aio.AioRpcError as error:
            await context.abort_with_status(to_status(from_rpc(error)))
        except grpc.aio.InternalError:  # what was written could not be sent
            await context.abort(StatusCode.CANCELLED, "the caller has gone")
        except Exception:
            log.exception("unexpected error")
            await context.abort(StatusCode.INTERNAL, "internal error")

    return call
