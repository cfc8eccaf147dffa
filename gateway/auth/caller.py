"""Callers, as the services behind the gateway are told of them."""

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
class Callers:
    """Makes the caller of each request; what a client says of itself elsewhere is not believed."""

    policy: "DataPolicy.ValueType"
    """Holds where neither a request nor its key says."""

    def caller(self, request_id: str = "", policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED) -> Caller:
        """A caller of the current identity, with the client's request id if it is one, else a new one.

        Args:
            request_id: as the client sent it.
            policy: what the request asks for.

        Raises:
            PermissionDenied: POLICY, the request would let out what its key keeps in.
        """
        who = identity.current()
        if who.policy == DATA_POLICY_LOCAL and policy == DATA_POLICY_OPEN:
            raise PermissionDenied(
                "the key keeps all data in the house, and the request asks for the policy open",
                reason="POLICY",
                remedy="leave the policy out, or use a key without --policy local",
                port="policy",
            )
        known = request_id if _REQUEST_ID.fullmatch(request_id) else f"req_{secrets.token_hex(12)}"
        return Caller(
            tenant=who.tenant,
            key_id=who.key_id,
            policy=policy or who.policy or self.policy,
            priority=PRIORITY_INTERACTIVE,
            request_id=known,
            items_at_once=who.limits.concurrent_runs,
        )
