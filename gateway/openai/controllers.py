"""The controllers, which OpenAI clients select as models: ways to run a request, not models of tasks."""

from gateway.core.catalog import CONTROLLERS, LOCAL_CONTROLLER
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, Caller
from services.common.errors import NotFound


def require_controller(model: str) -> str:
    """Returns the name of an existing controller.

    Raises:
        NotFound: MODEL_NOT_FOUND.
    """
    if model not in CONTROLLERS:
        raise NotFound(
            f"there is no model {model[:100]!r}" if model else "the model is missing",
            reason="MODEL_NOT_FOUND",
            remedy=f"use one of {', '.join(CONTROLLERS)}, which choose the models of tasks",
            port="model",
        )
    return model


def with_controller_policy(caller: Caller, model: str) -> Caller:
    """Returns the caller, with the data policy local for the local controller."""
    controller_caller = Caller()
    controller_caller.CopyFrom(caller)
    if model == LOCAL_CONTROLLER:
        controller_caller.policy = DATA_POLICY_LOCAL
    return controller_caller
