"""Calls to the services behind the gateway: for the caller, with a deadline, and with errors a client can act on."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from grpc import StatusCode

from services.common import call_context
from services.common.errors import ServiceError, Unavailable, from_rpc

T = TypeVar("T")

CALL_SECONDS = 10.0
"""How long an answer may take."""

ABSENT = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED)
"""What a call ends with when its server is not there, or no longer."""


async def ask(method: Callable[..., Awaitable[T]], request: Any) -> T:
    """One call of a stub's method.

    Raises:
        ServiceError: what the service raised, or Unavailable if it did not answer.
    """
    try:
        return await method(request, timeout=CALL_SECONDS, metadata=call_context.metadata())
    except grpc.aio.AioRpcError as error:
        raise told(error) from error


def told(error: grpc.aio.AioRpcError) -> ServiceError:
    """What a failed call means to whoever asked the gateway."""
    known = from_rpc(error)
    return absent() if error.code() in ABSENT and not known.remedy else known


def absent() -> Unavailable:
    return Unavailable(
        "a service behind the gateway does not answer",
        remedy="see which one with GET /readyz or hugginggpt doctor, and try again",
    )
