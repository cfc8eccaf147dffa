"""Data policy check before data leaves the deployment."""

from services.common import call_context
from services.common.errors import FailedPrecondition


def check_data_policy(model_id: str, remedy: str) -> None:
    """Checks that the call's data may leave the deployment; must be called before any of it is sent.

    A caller without a data policy counts as LOCAL.

    Raises:
        FailedPrecondition: POLICY.
    """
    if not call_context.allows_external_endpoints():
        raise FailedPrecondition(
            f"the data policy keeps this request inside the deployment, and {model_id} runs outside",
            reason="POLICY",
            remedy=remedy,
        )
