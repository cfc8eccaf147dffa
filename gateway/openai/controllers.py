"""The models OpenAI's clients can ask for: ways to run a request, not models of the catalogue."""

from gateway.catalog import CONTROLLERS, LOCAL_CONTROLLER
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, Caller
from services.common.errors import NotFound


def checked(model: str) -> str:
    """The controller of that name.

    Raises:
        NotFound: MODEL_NOT_FOUND.
    """
    if model not in CONTROLLERS:
        raise NotFound(
            f"there is no model {model[:100]!r}" if model else "no model is named",
            reason="MODEL_NOT_FOUND",
            remedy=f"use one of {', '.join(CONTROLLERS)}; models of tasks are chosen by it",
            port="model",
        )
    return model


def on_behalf_of(caller: Caller, model: str) -> Caller:
    """The caller as the controller acts for it: under the local one no byte leaves the house."""
    acting = Caller()
    acting.CopyFrom(caller)
    if model == LOCAL_CONTROLLER:
        acting.policy = DATA_POLICY_LOCAL
    return acting
