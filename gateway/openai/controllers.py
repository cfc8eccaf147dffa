"""The controllers, which OpenAI clients select as models: ways to run a request, not models of tasks."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from gateway.core.catalog import CONTROLLERS, LOCAL_CONTROLLER
from gateway.http.catalog_routes import controller
from gateway.http.json_body import json_response
from gateway.openapi import openai_operations
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


class ModelRoutes:
    """Descriptions of single controllers."""

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/models", tags=["openai"], default_response_class=Response)
        router.add_api_route("/{model}", self.show, methods=["GET"], **openai_operations.MODEL)
        return router

    async def show(
        self, model: Annotated[str, Path(description="Id of the model.", examples=["hugginggpt"])]
    ) -> Response:
        """Describes a model of the OpenAI-compatible API."""
        return json_response(controller(require_controller(model)))
