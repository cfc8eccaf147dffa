"""Identity of an authenticated request, its rights and limits, and the caller made from it."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    DATA_POLICY_UNSPECIFIED,
    PRIORITY_INTERACTIVE,
    Caller,
    DataPolicy,
)
from services.common.errors import PermissionDenied

TENANT = "default"
"""Tenant of requests that need no authentication."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Limits(BaseModel):
    """Limits of an API key or a JWT subject; 0 means no limit."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="ignore")

    requests_per_minute: int = Field(0, ge=0)
    """HTTP requests and gRPC calls of any kind."""
    concurrent_runs: int = Field(0, ge=0)
    """Runs that are accepted and have not ended."""
    bytes_per_day: int = Field(0, ge=0)
    """Bytes received in bodies, messages and fetched files."""
    tokens_per_day: int = Field(0, ge=0)
    """LLM input and output tokens of the caller's runs, counted when a run ends."""


NO_LIMITS = Limits()


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


@dataclass(frozen=True)
class CallerFactory:
    """Creates the caller of each request from its authenticated identity, never from what a client claims."""

    policy: "DataPolicy.ValueType"
    """Data policy of the deployment, for requests and keys that state none."""

    def create(self, request_id: str = "", policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED) -> Caller:
        """Creates a caller for the current identity; an invalid request id is replaced by a new one.

        Args:
            request_id: request id sent by the client.
            policy: data policy requested by the client.

        Raises:
            PermissionDenied: POLICY, the request asks for `open` but its key requires `local`.
        """
        current_identity = current()
        if current_identity.policy == DATA_POLICY_LOCAL and policy == DATA_POLICY_OPEN:
            raise PermissionDenied(
                "the API key requires the data policy local, but the request asks for open",
                reason="POLICY",
                remedy="leave the policy out, or use a key without --policy local",
                port="policy",
            )
        known = request_id if _REQUEST_ID.fullmatch(request_id) else f"req_{secrets.token_hex(12)}"
        return Caller(
            tenant=current_identity.tenant,
            key_id=current_identity.key_id,
            policy=policy or current_identity.policy or self.policy,
            priority=PRIORITY_INTERACTIVE,
            request_id=known,
            items_at_once=current_identity.limits.concurrent_runs,
        )
