"""Who a request has proved to come from; kept in a context variable that no client can set."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from gateway.limits.limits import NO_LIMITS, Limits
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_UNSPECIFIED, DataPolicy
from services.common.errors import PermissionDenied

TENANT = "default"
"""Of whoever need not say."""


@dataclass(frozen=True)
class Identity:
    """A tenant, and how it showed that it is one."""

    tenant: str
    key_id: str = ""
    """Public id of the key; empty where nobody has to show one."""
    policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED
    """What the key says; unspecified: as the gateway is set up."""
    admin: bool = False
    """May change what all tenants share."""
    limits: Limits = NO_LIMITS


NOBODY = Identity("")
"""Who has proved nothing; owns nothing."""

OWNER = Identity(TENANT, admin=True)
"""Whoever sits at a machine that asks nobody for a key."""

_current: ContextVar[Identity] = ContextVar("identity", default=NOBODY)


def current() -> Identity:
    """Who asks for what is being served."""
    return _current.get()


@contextmanager
def identified_as(identity: Identity) -> Iterator[None]:
    """Serves that identity within the block."""
    token = _current.set(identity)
    try:
        yield
    finally:
        _current.reset(token)


def require_admin() -> None:
    """Lets only those go on that may change what all tenants share.

    Raises:
        PermissionDenied: ADMIN.
    """
    if not current().admin:
        raise PermissionDenied(
            "this changes what all tenants share, and the key may not",
            reason="ADMIN",
            remedy="use a key made with hugginggpt keys create --admin",
        )
