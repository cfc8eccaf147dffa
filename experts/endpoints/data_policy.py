"""Whether bytes may leave the house."""

from services.common import call_context
from services.common.errors import FailedPrecondition


def check_may_leave(model_id: str, remedy: str) -> None:
    """To be called before anything of a call is sent anywhere; who says nothing of its policy is taken for LOCAL.

    Raises:
        FailedPrecondition: POLICY.
    """
    if not call_context.allows_external_endpoints():
        raise FailedPrecondition(
            f"the data of this request may not leave the house, and {model_id} is outside",
            reason="POLICY",
            remedy=remedy,
        )
