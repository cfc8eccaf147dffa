"""Route GET /v1/models/{model}; the list is a route of the catalog."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from gateway.http.catalog_routes import controller
from gateway.http.run_routes import json_response
from gateway.openai import controllers
from gateway.openapi import openai_operations


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
        return json_response(controller(controllers.require_controller(model)))
