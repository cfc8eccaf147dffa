"""On whose behalf a call is made: kept in a context variable, sent as metadata on every hop."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from google.protobuf.message import DecodeError

from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller
from services.common.errors import InvalidRequest

KEY = "hugginggpt-caller-bin"

UNKNOWN = Caller(tenant="default", policy=DATA_POLICY_LOCAL)
"""Who calls when nobody says: nothing may leave the house."""

_current: ContextVar[Caller] = ContextVar("caller", default=UNKNOWN)


def current() -> Caller:
    """The caller of what is being served."""
    return _current.get()


def may_leave_the_house() -> bool:
    """Whether the current caller's data policy lets bytes go to external endpoints."""
    return current().policy == DATA_POLICY_OPEN


@contextmanager
def acting_for(caller: Caller) -> Iterator[None]:
    """Serves the caller within the block; its ids stand in every log line."""
    token = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(token)


def metadata() -> tuple[tuple[str, bytes], ...]:
    """What an outgoing call carries for the current caller."""
    return ((KEY, current().SerializeToString()),)


def from_metadata(received: Any) -> Caller:
    """The caller of an incoming call.

    Raises:
        InvalidRequest: the metadata is not a Caller.
    """
    for key, value in received or ():
        if key == KEY:
            try:
                return Caller.FromString(value)
            except DecodeError:
                raise InvalidRequest(f"metadata {KEY} is not a Caller message") from None
    return UNKNOWN
