"""Call context of gRPC calls."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from gateway.auth.caller import CallerFactory
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_UNSPECIFIED, DataPolicy
from services.common.call_context import use_caller


@dataclass(frozen=True)
class CallerContext:
    """Sets the caller of a gRPC call from the authenticated identity; caller metadata sent by clients is ignored."""

    callers: CallerFactory

    def __call__(
        self, context: Any, policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED
    ) -> AbstractContextManager[None]:
        """Sets the caller within the block, with the requested data policy.

        Raises:
            PermissionDenied: POLICY.
        """
        sent = dict(context.invocation_metadata() or ())
        return use_caller(self.callers.create(sent.get("x-request-id", ""), policy))
