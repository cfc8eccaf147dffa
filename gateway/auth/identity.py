"""Authenticated identity of the current request, in a context variable."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from gateway.limits.limits import NO_LIMITS, Limits
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_UNSPECIFIED, DataPolicy
from services.common.errors import PermissionDenied

TENANT = "default"
"""Tenant of requests that need no authentication."""


@dataclass(frozen=True)
class Identity:
    """An authenticated tenant, with the rights and limits of its credential."""

    tenant: str
    key_id: str = ""
    """Public id of the API key; empty without authentication."""
    policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED
    """Data policy of the key; unspecified: the deployment's."""
    admin: bool = False
    """Whether settings shared by all tenants may be changed."""
    limits: Limits = NO_LIMITS


ANONYMOUS = Identity("")
"""Unauthenticated; owns nothing."""

LOCAL_ADMIN = Identity(TENANT, admin=True)
"""Identity of every request when authentication is disabled."""

_current: ContextVar[Identity] = ContextVar("identity", default=ANONYMOUS)


def current() -> Identity:
    """Returns the identity of the request being served."""
    return _current.get()


@contextmanager
def identified_as(identity: Identity) -> Iterator[None]:
    """Sets the current identity within the block."""
    token = _current.set(identity)
    try:
        yield
    finally:
        _current.reset(token)


def require_admin() -> None:
    """Requires the current identity to be an administrator.

    Raises:
        PermissionDenied: ADMIN.
    """
    if not current().admin:
        raise PermissionDenied(
            "this operation affects all tenants and requires an admin key",
            reason="ADMIN",
            remedy="use a key created with hugginggpt keys create --admin",
        )
