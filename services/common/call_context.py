"""The caller on whose behalf a request is served: a context variable in the process, metadata between processes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from google.protobuf.message import DecodeError

from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller
from services.common.errors import InvalidRequest

METADATA_KEY = "hugginggpt-caller-bin"
"""Metadata key of the serialized Caller."""

DEFAULT_CALLER = Caller(tenant="default", policy=DATA_POLICY_LOCAL)
"""The caller of a request without that metadata; its data stays in the deployment."""

TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""Matches the names of tenants."""

_current: ContextVar[Caller] = ContextVar("caller", default=DEFAULT_CALLER)


def current() -> Caller:
    """The caller of the current request."""
    return _current.get()


def allows_external_endpoints() -> bool:
    """Whether the current caller's data policy lets data leave the deployment."""
    return current().policy == DATA_POLICY_OPEN


def is_valid_tenant(name: str) -> bool:
    """Whether a tenant's name is up to 63 lower-case letters, digits and hyphens, and does not start with a hyphen."""
    return TENANT.fullmatch(name) is not None


def check_tenant(tenant: str) -> None:
    """Raises InvalidRequest for a malformed name."""
    if not is_valid_tenant(tenant):
        raise InvalidRequest("a tenant is named by lower-case letters, digits and hyphens", remedy="check the tenant")


@contextmanager
def use_caller(caller: Caller) -> Iterator[None]:
    """Makes a caller the current one within the block; log lines then contain its request and run id."""
    token = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(token)


def metadata() -> tuple[tuple[str, bytes], ...]:
    """Metadata of an outgoing call that passes the current caller on."""
    return ((METADATA_KEY, current().SerializeToString()),)


def from_metadata(received: Any) -> Caller:
    """The caller of an incoming call.

    Raises:
        InvalidRequest: the metadata is not a serialized Caller.
    """
    for key, value in received or ():
        if key == METADATA_KEY:
            try:
                return Caller.FromString(value)
            except DecodeError:
                raise InvalidRequest(f"metadata {METADATA_KEY} is not a Caller message") from None
    return DEFAULT_CALLER
