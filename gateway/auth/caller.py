"""Callers: the identity, data policy and priority that the gateway passes to the services."""

import re
import secrets
from dataclasses import dataclass

from gateway.auth import identity
from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    DATA_POLICY_UNSPECIFIED,
    PRIORITY_INTERACTIVE,
    Caller,
    DataPolicy,
)
from services.common.errors import PermissionDenied

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


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
        current_identity = identity.current()
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
