"""Access log of gRPC calls: method, status and duration, without content."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog
from grpc import StatusCode
from structlog.contextvars import get_contextvars

from gateway.http.telemetry import valid_run_id
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)


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
