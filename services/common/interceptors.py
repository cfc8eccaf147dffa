"""Server interceptors: the caller's context, the mapping of errors to status codes, traces and metrics."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc import StatusCode

from services.common import call_context, metrics, tracing
from services.common.errors import InvalidRequest, ServiceError, from_rpc, to_status

log = structlog.get_logger(__name__)


def server_interceptors() -> list[grpc.aio.ServerInterceptor]:
    """The interceptors of every server, outermost first; telemetry only if tracing or metrics are on."""
    tracer_provider = tracing.provider()
    if not tracer_provider and not metrics.is_enabled():
        return [StatusInterceptor()]
    from services.common.rpc_telemetry import TelemetryInterceptor  # noqa: PLC0415  # loads OpenTelemetry's SDK

    return [TelemetryInterceptor(tracer_provider), StatusInterceptor()]


class StatusInterceptor(grpc.aio.ServerInterceptor):
    """Sets the current caller from a call's metadata and turns exceptions into status codes.

    A ServiceError is sent with its message and details, another exception as INTERNAL without any. A request that
    cannot be decoded becomes INVALID_ARGUMENT; gRPC itself would name Python classes to the caller.
    """

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        known, wrapped = self._wrapped.get(method, (None, None))
        if known is not handler:
            wrapped = _wrap(handler)
            self._wrapped[method] = handler, wrapped
        return wrapped


def _wrap(handler: Any) -> Any:
    """A method's handler with the caller's context and error mapping."""
    codec = {
        "request_deserializer": _returning_errors(handler.request_deserializer),
        "response_serializer": handler.response_serializer,
    }
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(_guard(handler.unary_unary), **codec)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(_guard(handler.unary_stream), **codec)
    if handler.stream_unary:
        return grpc.stream_unary_rpc_method_handler(_guard(handler.stream_unary, _check_each), **codec)
    return handler


def _returning_errors(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer that returns an error instead of raising it, since gRPC would hide what it raises."""

    def read(message: bytes) -> Any:
        try:
            return deserialize(message)
        except DecodeError as error:
            if "UTF-8" in str(error):
                return InvalidRequest("a text is not UTF-8", reason="NOT_UTF8", remedy="send text as UTF-8")
            return InvalidRequest("the message is malformed", remedy="make it with code generated from the protos")

    return read


def _check(request: Any) -> Any:
    """Raises the error that the deserializer returned in place of a request."""
    if isinstance(request, ServiceError):
        raise request
    return request


async def _check_each(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _check(request)


def _guard(
    method: Callable[..., Awaitable[Any]], check: Callable[[Any], Any] = _check
) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            with call_context.use_caller(call_context.from_metadata(context.invocation_metadata())):
                return await method(check(request), context)
        except grpc.aio.AbortError:
            raise
        except ServiceError as error:
            await context.abort_with_status(to_status(error))
        except grpc.aio.AioRpcError as error:
            await context.abort_with_status(to_status(from_rpc(error)))
        except grpc.aio.InternalError:  # a message could not be sent
            await context.abort(StatusCode.CANCELLED, "the client has disconnected")
        except Exception:
            log.exception("unexpected error")
            await context.abort(StatusCode.INTERNAL, "internal error")

    return call
