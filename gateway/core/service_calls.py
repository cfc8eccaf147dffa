"""Calls to the services behind the gateway, with caller metadata, a timeout and translated errors."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from grpc import StatusCode

from services.common import call_context
from services.common.errors import ServiceError, Unavailable, from_rpc

T = TypeVar("T")

CALL_TIMEOUT_SECONDS = 10.0
"""Timeout of a unary call."""

UNAVAILABLE_CODES = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED)
"""Status codes of calls to an unreachable or stopping server."""


async def call(method: Callable[..., Awaitable[T]], request: Any) -> T:
    """Calls a stub's method.

    Raises:
        ServiceError: the service's error, or Unavailable if it did not respond.
    """
    try:
        return await method(request, timeout=CALL_TIMEOUT_SECONDS, metadata=call_context.metadata())
    except grpc.aio.AioRpcError as error:
        raise service_error(error) from error


def service_error(error: grpc.aio.AioRpcError) -> ServiceError:
    """Translates a gRPC error; errors of unreachable servers become Unavailable."""
    known = from_rpc(error)
    return unavailable() if error.code() in UNAVAILABLE_CODES and not known.remedy else known


def unavailable() -> Unavailable:
    return Unavailable(
        "a service behind the gateway is unavailable",
        remedy="see GET /readyz or hugginggpt doctor for its name, and try again",
    )
