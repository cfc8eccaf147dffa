"""For whom a gRPC call is served."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from gateway.auth.caller import Callers
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_UNSPECIFIED, DataPolicy
from services.common.call_context import use_caller


@dataclass(frozen=True)
class Acting:
    """Serves calls for the caller the gateway knows, whoever the metadata names."""

    callers: Callers

    def __call__(
        self, context: Any, policy: "DataPolicy.ValueType" = DATA_POLICY_UNSPECIFIED
    ) -> AbstractContextManager[None]:
        """Within the block, as the policy asked for has it.

        Raises:
            PermissionDenied: POLICY.
        """
        sent = dict(context.invocation_metadata() or ())
        return use_caller(self.callers.caller(sent.get("x-request-id", ""), policy))
