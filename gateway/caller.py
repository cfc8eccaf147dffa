"""Who calls: as long as nobody has to say, the one tenant of a machine of one's own."""

import re
import secrets
from dataclasses import dataclass

from protos.hugginggpt.v1.types_pb2 import (
    DATA_POLICY_UNSPECIFIED,
    PRIORITY_INTERACTIVE,
    Caller,
    DataPolicy,
)

TENANT = "default"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True)
class Callers:
    """Makes the caller of each request; what a client says of itself elsewhere is not believed."""

    policy: "DataPolicy.ValueType"
    """Holds where a request does not say."""

    def caller(self, request_id: str = "", policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED) -> Caller:
        """A caller, with the client's request id if it is one, else a new one."""
        known = request_id if _REQUEST_ID.fullmatch(request_id) else f"req_{secrets.token_hex(12)}"
        return Caller(tenant=TENANT, policy=policy or self.policy, priority=PRIORITY_INTERACTIVE, request_id=known)
