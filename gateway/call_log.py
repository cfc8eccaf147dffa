"""gRPC calls, each a line in the log, as requests over HTTP have one: by method, never by content."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog
from grpc import StatusCode
from structlog.contextvars import get_contextvars

from gateway.http.telemetry import run_named
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)


class CallLog(grpc.aio.ServerInterceptor):
    """Says in the log what was asked for and what came of it; health and reflection are left out."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        kinds = ("unary_unary", "unary_stream", "stream_unary")
        return handler._replace(
            **{kind: _logged(method[1:], answer) for kind in kinds if (answer := getattr(handler, kind))}
        )


def _logged(method: str, answer: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        began, code = time.perf_counter(), StatusCode.OK
        try:
            return await answer(request, context)
        except BaseException as error:
            code = _code(error, context)
            raise
        finally:
            seconds = round(time.perf_counter() - began, 4)
            log.info("call", method=method, code=code.name, seconds=seconds, **_run(request))

    return call


def _code(error: BaseException, context: grpc.aio.ServicerContext[Any, Any]) -> StatusCode:
    match error:
        case ServiceError():
            return error.code
        case grpc.aio.AioRpcError():
            return error.code()
        case asyncio.CancelledError() | grpc.aio.InternalError():  # the latter: what was written could not be sent
            return StatusCode.CANCELLED
    return context.code() or StatusCode.INTERNAL


def _run(request: Any) -> dict[str, str]:
    """The run that the call has begun, or that it names."""
    run_id = get_contextvars().get("run_id") or run_named(getattr(request, "run_id", ""))
    return {"run_id": run_id} if run_id else {}
